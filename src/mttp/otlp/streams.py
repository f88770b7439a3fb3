"""
The lines of a plain, gzip or zstd file, in constant memory, wherever a crash cut the file off.

Compression is told by the first bytes, not by the name.
A file may hold several gzip members or zstd frames: every writer that appends adds one.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from mttp.errors import MissingExtra
from mttp.otlp.malloc import keep_freed

__all__ = [
    "READABLE_LINE_BYTES",
    "Cut",
    "StreamLine",
    "FilePart",
    "Skipped",
    "ends_cleanly",
    "is_compressed",
    "read_lines",
    "shares",
]

_File: TypeAlias = "BufferedReader[FileIO]"

_BUFFER = 1 << 20
_PIECE = 1 << 18
_COMPRESSED_PIECE = {"gzip": 1 << 13, "zstd": 1 << 10}
"""
Bytes read at once, since what they become is held in memory.

At most that is 1,032 times as much of gzip; of zstd a block of 4 bytes becomes 128 KiB.
"""
_PLAUSIBLE_RATIO, _ALWAYS_READ = 1000, 1 << 30
"""A file may become so many times as long, or so many bytes; recordings become 5 to 50 times as long."""
READABLE_LINE_BYTES = 1 << 28
"""A longer line is left out, its end included; who writes must not write one."""
_MOST_SKIPPED = 1 << 34
"""After so many bytes without a newline a plain file is given up: it may be a device without end."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StreamLine(NamedTuple):
    """One line."""

    number: int
    """Its place in the file, from 1."""
    content: bytes
    """Its bytes without the newline."""
    ended: bool
    """Whether a newline followed: False only for the last line of a file, which may be cut short."""


class Skipped(NamedTuple):
    """A line that is left out."""

    number: int
    """Its place in the file, from 1."""
    reason: str
    """Why, in words."""


class Cut(NamedTuple):
    """The place from which on a file can't be read; comes last."""

    number: int
    """The line within which it is."""
    content: bytes
    """What could be read of that line."""
    reason: str
    """What is wrong there."""


class FilePart(NamedTuple):
    """A part of a plain file."""

    start: int
    """The byte that it begins with, the first of a line."""
    end: int
    """The byte before which its last line begins."""


Progress = Callable[[int], object]
"""Called with the number of bytes of each piece that was read from the disk."""


class _Decoder(Protocol):
    """One gzip member or zstd frame being read."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def read_lines(
    path: str | os.PathLike[str], *, share: FilePart | None = None, progress: Progress | None = None
) -> Iterator[StreamLine | Skipped | Cut]:
    """
    The file's lines, empty ones left out; a `Cut` at the end if the file can't be read on.

    In the place of a line that is too long there is a `Skipped`.
    Of a `share` the lines in it, numbered from 1.
    """
    keep_freed()
    path = Path(path)
    with BufferedReader(FileIO(path), _BUFFER) as file:
        if _compression(file) is None:
            yield from _plain(file, share or FilePart(0, sys.maxsize), progress)
        else:
            yield from _split(_chunks(path, file, progress))


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether a file can only be read from its beginning."""
    with BufferedReader(FileIO(path)) as file:
        return _compression(file) is not None


def shares(path: str | os.PathLike[str], size: int) -> list[FilePart]:
    """The file in shares of whole lines, each about so many bytes; a compressed one in one."""
    whole = FilePart(0, sys.maxsize)
    with BufferedReader(FileIO(path)) as file:
        total = file.seek(0, os.SEEK_END)
        file.seek(0)
        if _compression(file) is not None:
            return [whole]
        ends = [whole.start]
        while ends[-1] + size < total:
            file.seek(ends[-1] + size - 1)
            if len(file.readline(READABLE_LINE_BYTES)) == READABLE_LINE_BYTES:
                return [whole]
            ends.append(file.tell())
    return [FilePart(start, end) for start, end in pairwise((*ends, whole.end)) if start < max(total, 1)]


def ends_cleanly(path: str | os.PathLike[str], *, start: int = 0) -> bool:
    """
    Whether more can be appended to the file, looking at what begins at the byte `start`.

    Its last line must have a newline, and its last gzip member or zstd frame be whole.
    An empty or absent file ends cleanly.
    """
    path = Path(path)
    if not path.exists() or path.stat().st_size == 0:
        return True
    last = b""
    with BufferedReader(FileIO(path)) as file:
        file.seek(start)
        if start and _compression(file) is None:
            return False
        for chunk in _chunks(path, file, None):
            if isinstance(chunk, str):
                return False
            last = chunk or last
    return last.endswith(b"\n")


def _plain(file: _File, share: FilePart, progress: Progress | None) -> Iterator[StreamLine | Skipped | Cut]:
    """The lines of a plain file."""
    if share.start:
        file.seek(share.start)
    number, left = 0, share.end - share.start
    while left > 0 and (content := file.readline(READABLE_LINE_BYTES)):
        number += 1
        left -= len(content)
        if progress is not None:
            progress(len(content))
        ended = content.endswith(b"\n")
        if not ended and len(content) == READABLE_LINE_BYTES:
            content = b""  # its memory is free before the caller gets the next item
            skipped = _skip_line(file, progress)
            if skipped > _MOST_SKIPPED:
                yield Cut(number, b"", f"the line is longer than {_MOST_SKIPPED >> 30} GiB")
                return
            left -= skipped
            yield _too_long(number)
            continue
        if number == 1 and not share.start:
            content = _without_mark(content)
        if content and not content.isspace():
            yield StreamLine(number, content[:-1] if ended else content, ended)


def _skip_line(file: _File, progress: Progress | None) -> int:
    """Read to the end of a line, or a little more than `_MOST_SKIPPED` bytes; how many they were."""
    skipped = 0
    while skipped <= _MOST_SKIPPED and (piece := file.readline(_BUFFER)):
        skipped += len(piece)
        if progress is not None:
            progress(len(piece))
        if piece.endswith(b"\n"):
            break
    return skipped


def _split(chunks: Iterator[bytes | str]) -> Iterator[StreamLine | Skipped | Cut]:
    """The lines of what comes in pieces; text, as the last piece, says why there is no more."""
    rest: list[bytes] = []
    number, length = 1, 0  # of the line that `rest` is the beginning of
    for chunk in chunks:
        if isinstance(chunk, str):
            yield Cut(number, b"".join(rest), chunk)
            return
        if not length and chunk.isspace() and chunk.endswith(b"\n"):  # a file may have a thousand million
            number += chunk.count(b"\n")
            continue
        *ends, last = chunk.split(b"\n")
        for content in ends:
            if length + len(content) > READABLE_LINE_BYTES:
                yield _too_long(number)
            elif (content := b"".join((*rest, content))) and not content.isspace():
                yield StreamLine(number, _without_mark(content) if number == 1 else content, True)
            rest.clear()
            number, length = number + 1, 0
        length += len(last)
        if length > READABLE_LINE_BYTES:
            rest.clear()
        elif last:
            rest.append(last)
    if length > READABLE_LINE_BYTES:
        yield _too_long(number)
    elif (content := b"".join(rest)) and not content.isspace():
        yield StreamLine(number, _without_mark(content) if number == 1 else content, False)


def _too_long(number: int) -> Skipped:
    return Skipped(number, f"the line is longer than {READABLE_LINE_BYTES >> 20} MiB, and is left out")


def _without_mark(content: bytes) -> bytes:
    return content.removeprefix(_BYTE_ORDER_MARK)


def _compression(file: _File) -> Literal["gzip", "zstd"] | None:
    """What the first bytes say."""
    start = file.peek(4)[:4]
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start == _ZSTD or start[1:] == _ZSTD_SKIPPABLE else None


def _chunks(path: Path, file: _File, progress: Progress | None) -> Iterator[bytes | str]:
    """The decompressed content piece by piece; text, as the last piece, says why there is no more."""
    kind = _compression(file)
    if kind is None:
        return _pieces(file, _PIECE, progress)
    most = max(_PLAUSIBLE_RATIO * os.fstat(file.fileno()).st_size, _ALWAYS_READ)
    pieces = _pieces(file, _COMPRESSED_PIECE[kind], progress)
    return _limited(_decompressed(pieces, kind, _gzip if kind == "gzip" else _zstd(path)), most)


def _limited(chunks: Iterator[bytes | str], most: int) -> Iterator[bytes | str]:
    """The chunks in pieces of a bounded size, up to so many bytes."""
    taken = 0
    for chunk in chunks:
        if isinstance(chunk, str):
            yield chunk
            return
        for start in range(0, len(chunk), _BUFFER):
            if taken >= most:
                yield f"it becomes over {_PLAUSIBLE_RATIO} times as long as it is, which no recording does"
                return
            piece = chunk[start : start + _BUFFER]
            taken += len(piece)
            yield piece


def _pieces(file: _File, size: int, progress: Progress | None) -> Iterator[bytes]:
    while piece := file.read(size):
        if progress is not None:
            progress(len(piece))
        yield piece


def _decompressed(
    pieces: Iterator[bytes], name: str, new_decoder: Callable[[], _Decoder]
) -> Iterator[bytes | str]:
    decoder = new_decoder()
    for piece in pieces:
        if decoder.eof:
            piece = _unpadded(piece)
        while piece:
            decoder = new_decoder() if decoder.eof else decoder
            try:
                content = decoder.decompress(piece)
            except Exception as error:  # zlib.error or zstandard.ZstdError
                yield f"the {name} stream is damaged: {error}"
                return
            yield content
            piece = _unpadded(decoder.unused_data) if decoder.eof else b""
    if not decoder.eof:
        yield f"the {name} stream ends too early"


def _unpadded(piece: bytes) -> bytes:
    """What follows a member, without the zeros that a file may be padded with."""
    return piece.lstrip(b"\0")


def _gzip() -> _Decoder:
    return zlib.decompressobj(wbits=31)


def _zstd(path: Path) -> Callable[[], _Decoder]:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"reading {path}") from error
    return lambda: zstandard.ZstdDecompressor().decompressobj()
