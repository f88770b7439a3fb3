"""A pool of processes that decode large files ahead of the reader, in the order of lines."""

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
from typing import Any, NamedTuple

from mttp.otlp.processes import DONE, Process, ProcessLostError, can_start, own_environment
from mttp.otlp.recording_files import is_parquet
from mttp.otlp.streams import FilePart, Progress, is_compressed, shares
from mttp.reading.lines import Columns, Decoded, decode
from mttp.reading.worker import unpack

__all__ = ["DecoderPool", "start"]

_PART_BYTES = 8 << 20
"""Size of the parts into which a file is split."""
_MAX_COMPRESSED_BYTES = 32 << 20
"""Largest compressed file for the pool: it can't be split, so its decoded spans would fill memory."""
_MAX_PROCESSES = 16
"""More processes decode faster than one reader consumes."""
_PARTS_AHEAD = 2
"""Parts per process that are submitted ahead of the reader."""
_TIMEOUT_SECONDS = 30.0
"""Seconds after which the reader decodes a part itself, for example because the process is stopped."""


def start(sizes: dict[Path, int], *, arrays: bool, columns: Columns | None = None) -> DecoderPool | None:
    """A pool for these files, whose values are sizes in bytes; None if no processes can be started."""
    workers = _started(min(_cores(), _MAX_PROCESSES))
    if not workers:
        return None
    return DecoderPool(sizes, workers, arrays=arrays, columns=columns)


def _started(count: int) -> list[Process]:
    """Up to `count` started processes; none if `count` is 1 or processes can't be started."""
    workers: list[Process] = []
    with suppress(OSError, RuntimeError):  # the latter at the interpreter's end
        for _ in range(count if count > 1 and can_start() else 0):
            workers.append(Process("mttp.reading.worker", environment=own_environment()))
    return workers


def _cores() -> int:
    """Number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Task(NamedTuple):
    path: Path
    part: FilePart
    size: int


def _tasks(path: Path, size: int) -> list[_Task]:
    """The parts of a file; empty for a file that this process must read."""
    with suppress(OSError):  # reading the file here raises it again
        if not is_parquet(path) and (size <= _MAX_COMPRESSED_BYTES or not is_compressed(path)):
            return [_Task(path, part, min(part.end, size) - part.start) for part in shares(path, _PART_BYTES)]
    return []


class DecoderPool:
    """Processes that decode the parts of files."""

    def __init__(
        self,
        sizes: dict[Path, int],
        workers: list[Process],
        *,
        arrays: bool,
        columns: Columns | None = None,
    ) -> None:
        self._arrays = arrays
        self._columns = columns
        self.workers = workers
        self._free: SimpleQueue[Process] = SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(workers), "mttp-reading")
        self._tasks = chain.from_iterable(_tasks(path, size) for path, size in sizes.items())
        self._pending: deque[tuple[_Task, Future[bytes]]] = deque()
        self._submit(len(workers) * _PARTS_AHEAD)

    def decode(self, path: Path, *, progress: Progress | None = None) -> Iterator[Decoded]:
        """The decoded lines of a file; call it for the files in the order of `sizes`."""
        if not self._is_next(path):
            yield from decode(path, arrays=self._arrays, progress=progress, columns=self._columns)
            return
        numbers = _LineNumbers(path)
        try:
            while self._is_next(path):
                task, reply = self._next()
                for line in self._lines(task, reply.result()):
                    yield numbers.corrected(line, task.part)
                    if any(fault.kind == "cut_stream" for fault in line.faults):
                        return
                if progress is not None:
                    progress(task.size)
        finally:
            while self._is_next(path):
                self._next()[1].cancel()

    def stop(self) -> None:
        """Stop the processes, also while they decode."""
        for worker in self.workers:
            worker.hurry(0.0)
        self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.close()

    def _is_next(self, path: Path) -> bool:
        return bool(self._pending) and self._pending[0][0].path == path

    def _next(self) -> tuple[_Task, Future[bytes]]:
        task = self._pending.popleft()
        self._submit(1)
        return task

    def _submit(self, count: int) -> None:
        for task in islice(self._tasks, count):
            try:
                reply = self._threads.submit(self._reply, task)
            except RuntimeError:  # at the interpreter's end
                reply = Future()
                reply.set_result(b"")
            self._pending.append((task, reply))

    def _reply(self, task: _Task) -> bytes:
        """The packed lines of a part, as one of the processes decodes them; empty if it fails."""
        process = self._free.get()
        columns: Any = self._columns and tuple(self._columns)
        request = marshal.dumps((str(task.path), *task.part, self._arrays, columns))
        try:
            status, reply = process.ask(request, _TIMEOUT_SECONDS)
            return reply if status == DONE else b""
        except (ProcessLostError, OSError, ValueError):  # the process is closed by `stop`
            return b""
        finally:
            self._free.put(process)

    def _lines(self, task: _Task, reply: bytes) -> Iterator[Decoded]:
        """Return the decoded lines of a part, decoded here if there is no reply."""
        if reply:
            return unpack(marshal.loads(reply))
        return decode(task.path, arrays=self._arrays, part=task.part, columns=self._columns)


class _LineNumbers:
    """Line numbers in the whole file, counted only for parts with faults."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place, self._before = 0, 0

    def corrected(self, line: Decoded, part: FilePart) -> Decoded:
        """The line with its faults' line numbers in the file instead of in the part."""
        if not line.faults or not part.start:
            return line
        self._count(part.start)
        return Decoded(line.spans, [fault._replace(line=fault.line + self._before) for fault in line.faults])

    def _count(self, end: int) -> None:
        with self._path.open("rb") as file:
            file.seek(self._place)
            while self._place < end and (piece := file.read(min(_PART_BYTES, end - self._place))):
                self._before += piece.count(b"\n")
                self._place += len(piece)
