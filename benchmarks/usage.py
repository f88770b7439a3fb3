"""What this process and its children use: CPU time and memory, theirs included that still run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_seconds", "own_peak_mb", "peak_mb"]


def cpu_seconds(without: Sequence[int] = ()) -> float:
    """
    CPU seconds of this process and its children, those that still run included.

    `without` are children that don't count, such as a receiver. Where there is no /proc, none that runs does.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_ticks(child) for child in _descendants(os.getpid()) if child not in without)
    return time.process_time() + ended.ru_utime + ended.ru_stime + running / os.sysconf("SC_CLK_TCK")


def peak_mb(without: Sequence[int] = ()) -> float:
    """
    The most memory that this process had, in MB, with that of its running children and the largest ended one.

    `without` are children that don't count; then those that have ended don't either.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if not without else 0
    running = sum(_high_water(child) for child in _descendants(os.getpid()) if child not in without)
    return own_peak_mb() + (ended + running) / 1024


def own_peak_mb() -> float:
    """
    The most memory that this process had, in MB.

    Without /proc by what `getrusage` says, which is never less than what its parent had.
    """
    found = _high_water(os.getpid()) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found / 1024


def _descendants(process: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(process: int) -> int:
    """Clock ticks of a process and of its children that have ended."""
    with suppress(OSError):
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15]))
    return 0


def _high_water(process: int) -> int:
    """The most memory that a process had, in KiB."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0
