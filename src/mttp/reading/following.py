"""Follows files that grow: each call gives the spans that were written since the last one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.recording_files import File, is_parquet
from mttp.otlp.streams import FilePart, is_compressed
from mttp.reading import lines
from mttp.reading.problems import Problem, Problems
from mttp.reading.scanning import Scan
from mttp.reading.sources import find

__all__ = ["Arrived", "Follower"]

_PART = 1 << 18
"""Size in bytes of the parts in which a file of lines is read, and found again."""


class Arrived(NamedTuple):
    """Spans that were read together."""

    path: Path
    part: FilePart | None
    """Where in the file they are; None for a file that is read from its start."""
    spans: Sequence[SpanRecord]
    """The spans, without arrays unless the follower has them."""


@dataclass(slots=True)
class _Followed:
    """How far a file is read."""

    position: int = 0
    """First byte of a plain file that was not read yet."""
    seen: tuple[int, int] = (0, 0)
    """Size and time of change of a file that is read whole."""


class Follower:
    """
    Reads files, globs and directories again and again.

    Lines of plain files are read once, a line that is not finished yet when it is. Compressed files and
    Parquet are read again from their start after each change, so that their spans repeat.
    """

    def __init__(self, sources: Sequence[str], *, arrays: bool = False) -> None:
        self._sources = sources
        self._arrays = arrays
        self._followed: dict[tuple[int, int], _Followed] = {}
        """By device and inode, by which a file is known again after it is renamed."""
        self._problems = Problems(strict=False)
        self.bytes_read = 0

    @property
    def problems(self) -> list[Problem]:
        """Problems of what was read so far."""
        return self._problems.all()

    def poll(self) -> Iterator[Arrived]:
        """Yield what is new; raises ReadError where there is nothing to follow."""
        for item in self.files():
            try:
                yield from self._read(item)
            except FileNotFoundError:  # rotated or removed since it was found
                continue
            except OSError as error:
                raise ReadError(f"{item.path}: {error.strerror or error}") from error

    def files(self) -> list[File]:
        """The files that there are; raises ReadError if there are none, or for a source of another kind."""
        items = find([*self._sources])
        for item in items:
            if not isinstance(item, File):
                raise ReadError(f"{item!r} can't be followed: give files or directories, or use mttp report")
        return [item for item in items if isinstance(item, File)]

    def _read(self, item: File) -> Iterator[Arrived]:
        status = item.path.stat()
        identity = status.st_dev, status.st_ino
        known = self._followed.setdefault(identity, _Followed())
        if is_parquet(item.path) or is_compressed(item.path):
            if known.seen != (state := (status.st_size, status.st_mtime_ns)):
                yield from self._whole(item)
                known.seen = state
            return
        if status.st_size < known.position:
            known.position = 0  # the file was truncated and written anew
        for part in _parts(item.path, known.position, status.st_size):
            decoded = lines.decode(item.path, arrays=self._arrays, part=part)
            spans = [
                span for block in lines.read_blocks(_unnamed(item), decoded, self._problems) for span in block
            ]
            self.bytes_read += part.end - part.start
            known.position = part.end
            yield Arrived(item.path, part, spans)

    def _whole(self, item: File) -> Iterator[Arrived]:
        scan = Scan(str(item.path), arrays=self._arrays)
        batch: list[SpanRecord] = []
        try:
            for record in scan:
                batch.append(record)
                if len(batch) == 10_000:
                    yield Arrived(item.path, None, batch)
                    batch = []
        except ReadError:  # nothing was written yet, or the file is damaged
            if item.path.stat().st_size:
                raise
        yield Arrived(item.path, None, batch)
        for problem in scan.problems:
            self._problems.add(problem)
        self.bytes_read += item.path.stat().st_size


def _unnamed(item: File) -> File:
    """The file as one that need not hold a recording: a part of it may hold none."""
    return File(item.path, named=False)


def _parts(path: Path, start: int, size: int) -> Iterator[FilePart]:
    """Parts of whole lines from `start` on, without the last line if it is not finished."""
    with path.open("rb") as file:
        while start < size:
            file.seek(min(start + _PART, size) - 1)
            file.readline()
            end = file.tell()
            if end >= size:
                end = _last_line_end(path, start)
                if end <= start:
                    return
                size = end
            yield FilePart(start, end)
            start = end


def _last_line_end(path: Path, start: int) -> int:
    """The position after the last newline at or after `start`; `start` without one."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > start:
            step = min(_PART, position - start)
            file.seek(position - step)
            place = file.read(step).rfind(b"\n")
            if place >= 0:
                return position - step + place + 1
            position -= step
    return start
