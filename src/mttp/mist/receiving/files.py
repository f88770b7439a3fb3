"""Receives messages from files, including lines that are appended later."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, ClassVar
from urllib.parse import quote, unquote

from mttp.errors import EnvelopeError, TransportError
from mttp.mist.messages import MAX_SIZE, MessageLine, as_line
from mttp.otlp.recording_files import files, is_parquet
from mttp.otlp.streams import Cut, Skipped, is_compressed, read_lines
from mttp.transports.options import Flag, path_of, take

_PAUSE = 0.1
"""Seconds between two checks of a file for new lines."""
_AT_MOST = MAX_SIZE + 2  # with the end of the line


class FileOrigin:
    """Reads files: one with its parts, those that match a pattern, or all in a directory."""

    pending: ClassVar[int] = 0

    def __init__(self, path: str) -> None:
        self.address = f"mttp+file://{quote(path)}"
        self.refused: Counter[str] = Counter()
        self._files = [item.path for item in files(path) if not is_parquet(item.path)]
        self._closed = False

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over nonempty lines, file by file; an incomplete last line is an error."""
        for path in self._files:
            for item in read_lines(path):
                if self._closed:
                    return
                if isinstance(item, (Cut, Skipped)):
                    yield _unread(item, path)
                else:
                    yield _line(item.content, item.number, path)

    def close(self) -> None:
        """Stop after the current line."""
        self._closed = True


class FollowedOrigin:
    """Follows a growing file: waits until it exists, and reads it again if it is replaced."""

    pending: ClassVar[int] = 0

    def __init__(self, path: Path) -> None:
        self.address = f"mttp+file://{quote(str(path))}?follow=true"
        self.refused: Counter[str] = Counter()
        self._path = path
        self._closed = threading.Event()

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over lines as they are appended; an incomplete line waits for its end, or for `close`."""
        while (file := self._opened()) is not None:
            with file:
                yield from self._appended(file)

    def close(self) -> None:
        """Stop waiting for new lines."""
        self._closed.set()

    def _opened(self) -> IO[bytes] | None:
        """Open the file once it exists; return None after `close`."""
        while True:
            try:
                return self._path.open("rb") if not self._closed.is_set() else None
            except FileNotFoundError:
                self._closed.wait(_PAUSE)

    def _appended(self, file: IO[bytes]) -> Iterator[MessageLine]:
        """Iterate over the lines of one file, until it is replaced."""
        number, rest, size = 1, b"", 0
        while True:
            is_last = self._closed.is_set() or self._is_replaced(file)
            while piece := file.readline(_AT_MOST):
                rest, size = (rest + piece)[:_AT_MOST], size + len(piece)
                if piece.endswith(b"\n"):
                    yield from self._whole(rest, size, number)
                    number, rest, size = number + 1, b"", 0
            if is_last:
                yield from self._whole(rest, size, number)
                return
            self._closed.wait(_PAUSE)

    def _whole(self, content: bytes, size: int, number: int) -> Iterator[MessageLine]:
        stripped = content.removesuffix(b"\n").removesuffix(b"\r")
        if stripped:
            yield _line(stripped, number, self._path, size=size - len(content) + len(stripped))

    def _is_replaced(self, file: IO[bytes]) -> bool:
        """Whether the path now names another file, or the file was truncated."""
        opened = os.fstat(file.fileno())
        try:
            current = self._path.stat()
        except FileNotFoundError:
            return False  # until another file replaces it, this one may still grow
        return not os.path.samestat(current, opened) or opened.st_size < file.tell()


def _line(content: bytes, number: int, path: Path, *, size: int | None = None) -> MessageLine:
    return as_line(content.removesuffix(b"\r"), number=number, size=size, source=str(path))


def _unread(item: Cut | Skipped, path: Path) -> MessageLine:
    size = len(item.content) if isinstance(item, Cut) else 0
    return MessageLine(item.number, size, error=EnvelopeError(item.reason), source=str(path))


def open(address: str, options: Mapping[str, object]) -> FileOrigin | FollowedOrigin:
    """Open existing files, or with `follow` one plain file that grows."""
    path = unquote(path_of(address))
    if not path.strip("/"):
        raise TransportError("no path; write mttp+file://messages.jsonl")
    return _origin(path, **take(options, _origin))


def _origin(path: str, *, follow: Flag = False) -> FileOrigin | FollowedOrigin:
    if not follow:
        return FileOrigin(path)
    place = Path(path).expanduser().absolute()
    if place.is_dir() or (place.is_file() and is_compressed(place)):
        raise TransportError("only a plain file can be followed, not a directory or a compressed file")
    return FollowedOrigin(place)
