"""Processes that decode large files ahead of their reader, who gets every line in its order."""

from __future__ import annotations

import marshal
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from mttp.model.spans import SpanRecord
from mttp.otlp.processes import DONE, Process, ProcessLostError, can_start, own_environment
from mttp.otlp.recording_files import is_parquet
from mttp.otlp.streams import FilePart, Progress, is_compressed, shares
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.reading.lines import Decoded, decode
from mttp.reading.worker import Wanted, unpack

__all__ = ["DecoderPool", "start"]

_SHARE = 8 << 20
_COMPRESSED = 32 << 20
"""A compressed file can't be shared, and all that is decoded of it would wait in memory."""
_MOST = 16
"""One reader can't take what more of them decode."""
_AHEAD = 2
"""So many shares for each process are asked for before the reader has come to them."""
_PATIENCE = 30.0
"""Seconds after which a share is decoded here that a process has not decoded: it may have been stopped."""


def start(sizes: dict[Path, int], *, wanted: Wanted, is_open: IsOpen) -> DecoderPool | None:
    """Who decodes these files, of so many bytes each; None where there is nobody but this process."""
    workers = _started(min(_cores(), _MOST))
    return DecoderPool(sizes, workers, wanted=wanted, is_open=is_open) if workers else None


def _started(count: int) -> list[Process]:
    """As many processes as can be had, where that is more than one."""
    workers: list[Process] = []
    with suppress(OSError):
        for _ in range(count if count > 1 and can_start() else 0):
            workers.append(Process("mttp.reading.worker", environment=own_environment()))
    return workers


def _cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Task(NamedTuple):
    path: Path
    share: FilePart
    size: int


def _tasks(path: Path, size: int) -> list[_Task]:
    """The file's shares; none of one that has to be read here."""
    with suppress(OSError):  # whoever reads it here will see
        if not is_parquet(path) and (size <= _COMPRESSED or not is_compressed(path)):
            return [_Task(path, found, min(found.end, size) - found.start) for found in shares(path, _SHARE)]
    return []


class DecoderPool:
    """Processes at work on the shares of files."""

    def __init__(
        self, sizes: dict[Path, int], workers: list[Process], *, wanted: Wanted, is_open: IsOpen
    ) -> None:
        self._wanted: Wanted = wanted
        self._is_open = is_open
        self.workers = workers
        self._free: SimpleQueue[Process] = SimpleQueue()
        for one in self.workers:
            self._free.put(one)
        self._threads = ThreadPoolExecutor(len(workers), "mttp-reading")
        self._tasks = chain.from_iterable(_tasks(path, size) for path, size in sizes.items())
        self._asked: deque[tuple[_Task, Future[bytes]]] = deque()
        self._ask(len(workers) * _AHEAD)

    def decode(self, path: Path, *, progress: Progress | None = None) -> Iterator[Decoded]:
        """The file's lines; files are asked for in the order in which they were given."""
        if not self._is_next(path):
            yield from decode(path, arrays=self._wanted == "arrays", progress=progress)
            return
        numbers = _Numbers(path)
        try:
            while self._is_next(path):
                task, answer = self._next()
                for line in self._answer(task, answer.result()):
                    yield numbers.corrected(line, task.share)
                    if any(fault.kind == "cut_stream" for fault in line.faults):
                        return
                if progress is not None:
                    progress(task.size)
        finally:
            while self._is_next(path):
                self._next()[1].cancel()

    def stop(self) -> None:
        """Let go of the processes, whatever they are doing."""
        for one in self.workers:
            one.hurry(0.0)
        self._threads.shutdown(cancel_futures=True)
        for one in self.workers:
            one.close()

    def _is_next(self, path: Path) -> bool:
        return bool(self._asked) and self._asked[0][0].path == path

    def _next(self) -> tuple[_Task, Future[bytes]]:
        found = self._asked.popleft()
        self._ask(1)
        return found

    def _ask(self, count: int) -> None:
        for task in islice(self._tasks, count):
            self._asked.append((task, self._threads.submit(self._done, task)))

    def _done(self, task: _Task) -> bytes:
        one = self._free.get()
        try:
            status, answer = one.ask(marshal.dumps((str(task.path), *task.share, self._wanted)), _PATIENCE)
            return answer if status == DONE else b""
        except (ProcessLostError, OSError, ValueError):  # which is closed in the end
            return b""
        finally:
            self._free.put(one)

    def _answer(self, task: _Task, answer: bytes) -> Iterator[Decoded]:
        """
        The share's lines; decoded here where that went wrong elsewhere.

        And where an episode that is whole in the share has spans before it: then it must not be one value.
        """
        if answer:
            found = list(unpack(marshal.loads(answer)))
            if not any(map(self._is_divided, chain.from_iterable(line.spans or () for line in found))):
                return iter(found)
        return decode(task.path, arrays=self._wanted == "arrays", share=task.share)

    def _is_divided(self, item: SpanRecord | EpisodeSummary) -> bool:
        return isinstance(item, EpisodeSummary) and self._is_open(item.trace_id)


class _Numbers:
    """Lines' numbers in the whole file: few shares have a fault, and need to know."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place, self._before = 0, 0

    def corrected(self, line: Decoded, share: FilePart) -> Decoded:
        """The line with its place in the file where it has faults."""
        if not line.faults or not share.start:
            return line
        self._count(share.start)
        return Decoded(line.spans, [fault._replace(line=fault.line + self._before) for fault in line.faults])

    def _count(self, end: int) -> None:
        with self._path.open("rb") as file:
            file.seek(self._place)
            while self._place < end and (piece := file.read(min(_SHARE, end - self._place))):
                self._before += piece.count(b"\n")
                self._place += len(piece)
