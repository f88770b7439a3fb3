"""CPU time and memory of processes with all their children."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_seconds", "resident_mb"]


def cpu_seconds(without: Sequence[int] = ()) -> float:
    """
    CPU seconds of this process and its children, those included that still run.

    `without` are children that don't count, such as a receiver.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = {*_descendants(os.getpid()), *_encoding_processes()}
    running = sum(_ticks(process) for process in processes.difference(without))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running / os.sysconf("SC_CLK_TCK")


def resident_mb(process: int) -> float:
    """Return the memory of a process and its children in MB, without the receiver."""
    processes = {process, *_descendants(process), *_encoding_processes()}
    pages = sum(_pages(each) for each in processes if not _is_sink(each))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _descendants(process: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _encoding_processes() -> Iterator[int]:
    """Yield the encoding processes of this machine, which are nobody's children."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"mttp.otlp.encoding" in command.read_bytes():
                yield int(command.parent.name)


def _ticks(process: int) -> int:
    """Return the clock ticks of a process and of its ended children."""
    with suppress(OSError):
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15]))
    return 0


def _pages(process: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return 0


def _is_sink(process: int) -> bool:
    with suppress(OSError):
        return b"sink.py" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False
