"""Memory, handles, threads and CPU time of processes, from /proc, and the slope of memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import theilslopes

__all__ = ["Slope", "cpu_seconds", "descendants", "sampled", "slope"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """The children of a process, and the encoding processes of this machine, which are nobody's children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in task.read_text().split()]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"mttp.otlp.encoding" in command.read_bytes():
                found.append(int(command.parent.name))
    return found


def sampled(pid: int) -> dict[str, int]:
    """Resident bytes, open descriptors and threads; raises OSError when the process is gone."""
    folder = Path(f"/proc/{pid}")
    return {
        "rss": int((folder / "statm").read_text().split()[1]) * _PAGE,
        "fds": len(list((folder / "fd").iterdir())),
        "threads": len(list((folder / "task").iterdir())),
    }


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that it has waited for."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / _TICKS


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope with its 95 % confidence interval, by Theil and Sen: jumps of a few samples do not move it."""

    value: float
    low: float
    high: float


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the slope of values over times."""
    found = theilslopes(values, times, 0.95)
    return Slope(float(found[0]), float(found[2]), float(found[3]))
