"""Messages in files, and those that are appended to a file later."""

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

__all__ = ["FileOrigin", "FollowedOrigin", "open"]

_PAUSE = 0.1
"""Seconds between two looks at a file that nothing was appended to."""
_AT_MOST = MAX_SIZE + 2  # with the end of the line


class FileOrigin:
    """What files hold: one with its parts, those that match a pattern, or all in a directory."""

    pending: ClassVar[int] = 0

    def __init__(self, path: str) -> None:
        self.address = f"mttp+file://{quote(path)}"
        self.refused: Counter[str] = Counter()
        self._files = [item.path for item in files(path) if not is_parquet(item.path)]
        self._closed = False

    def lines(self) -> Iterator[MessageLine]:
        """File by file; empty lines are left out, and a last one that is cut short is an error."""
        for path in self._files:
            for item in read_lines(path):
                if self._closed:
                    return
                if isinstance(item, (Cut, Skipped)):
                    yield _unread(item, path)
                else:
                    yield _line(item.content, item.number, path)

    def close(self) -> None:
        """Stop with the next line."""
        self._closed = True


class FollowedOrigin:
    """A file that grows; it is waited for where it is not there yet, and read anew where it was replaced."""

    pending: ClassVar[int] = 0

    def __init__(self, path: Path) -> None:
        self.address = f"mttp+file://{quote(str(path))}?follow=true"
        self.refused: Counter[str] = Counter()
        self._path = path
        self._closed = threading.Event()

    def lines(self) -> Iterator[MessageLine]:
        """Lines as they are appended; one without an end is read once there is one, or this is closed."""
        while (file := self._opened()) is not None:
            with file:
                yield from self._appended(file)

    def close(self) -> None:
        """Wait for no more."""
        self._closed.set()

    def _opened(self) -> IO[bytes] | None:
        """The file, once it is there; None where it is not waited for any more."""
        while True:
            try:
                return self._path.open("rb") if not self._closed.is_set() else None
            except FileNotFoundError:
                self._closed.wait(_PAUSE)

    def _appended(self, file: IO[bytes]) -> Iterator[MessageLine]:
        """The lines of one file, until another has taken its place."""
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
        """Whether the path names another file by now, or the same that was emptied."""
        opened = os.fstat(file.fileno())
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False  # another may come, until then this one may still grow
        return not os.path.samestat(found, opened) or opened.st_size < file.tell()


def _line(content: bytes, number: int, path: Path, *, size: int | None = None) -> MessageLine:
    return as_line(content.removesuffix(b"\r"), number=number, size=size, source=str(path))


def _unread(item: Cut | Skipped, path: Path) -> MessageLine:
    size = len(item.content) if isinstance(item, Cut) else 0
    return MessageLine(item.number, size, error=EnvelopeError(item.reason), source=str(path))


def open(address: str, options: Mapping[str, object]) -> FileOrigin | FollowedOrigin:
    """Files as they are, or with `follow` one plain file for as long as it grows."""
    path = unquote(path_of(address))
    if not path.strip("/"):
        raise TransportError("no path; write mttp+file://messages.jsonl")
    return _origin(path, **take(options, _origin))


def _origin(path: str, *, follow: Flag = False) -> FileOrigin | FollowedOrigin:
    if not follow:
        return FileOrigin(path)
    place = Path(path).expanduser().absolute()
    if place.is_dir() or (place.is_file() and is_compressed(place)):
        raise TransportError("only a plain file can be followed, no directory and none that is compressed")
    return FollowedOrigin(place)
