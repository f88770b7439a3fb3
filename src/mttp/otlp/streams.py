"""
Reads the lines of plain, gzip and zstd files in constant memory, also of files that a crash cut off.

A JSON document that is written over several lines is one line here.
The compression is detected by the first bytes, not by the name.
A file may hold several gzip members or zstd frames: every writer that appends adds one.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader, FileIO
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from mttp.errors import MissingExtra
from mttp.model.interrupts import raise_interrupt

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
"""Limits of decompression, as a ratio and in bytes; recordings decompress to 5 to 50 times their size."""
READABLE_LINE_BYTES = 1 << 28
"""Maximum length of a line with its newline; longer lines are skipped."""
_MOST_SKIPPED = 1 << 34
"""Number of bytes without a newline after which reading stops: the file may be an endless device."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTINUED = b"{[,:"
"""The last characters of lines after which a JSON document goes on."""
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


class StreamLine(NamedTuple):
    """A line, or the lines of one JSON document."""

    number: int
    """Number of the first line, from 1."""
    content: bytes
    """The bytes without the last newline."""
    ended: bool
    """Whether a newline follows; False only for the last line of a file, which may be cut off."""


class Skipped(NamedTuple):
    """A skipped line."""

    number: int
    """Line number, from 1."""
    reason: str
    """The reason, for people."""


class Cut(NamedTuple):
    """The place where a file stops being readable; the last item."""

    number: int
    """Line number of the place."""
    content: bytes
    """The readable bytes of that line."""
    reason: str
    """The reason, for people."""


class FilePart(NamedTuple):
    """A part of a plain file."""

    start: int
    """First byte, which starts a line."""
    end: int
    """Byte before which its last line starts."""


Progress = Callable[[int], object]
"""Called with the number of bytes of each piece that was read from the disk."""


class _Decoder(Protocol):
    """Decompressor of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def read_lines(
    path: str | os.PathLike[str], *, share: FilePart | None = None, progress: Progress | None = None
) -> Iterator[StreamLine | Skipped | Cut]:
    """
    Yield the lines of a file without empty ones, and a `Cut` at the end if the rest can't be read.

    A line that is too long becomes a `Skipped`. With `share`, only the lines in it, numbered from 1.
    The lines of an indented JSON document are one `StreamLine`.
    """
    path = Path(path)
    with BufferedReader(FileIO(path), _BUFFER) as file:
        if _compression(file) is None:
            lines = _plain(file, share or FilePart(0, sys.maxsize), progress)
        else:
            lines = _split(_chunks(path, file, progress))
        for line in lines:
            if isinstance(line, StreamLine) and _opens(line.content):
                yield from _document(line, lines)
            else:
                yield line


def _opens(content: bytes) -> bool:
    """Return whether a line begins a JSON document that goes on in the next line."""
    ends, begins = content[-8:].rstrip()[-1:], content[:64].lstrip()[:1]
    return ends in _CONTINUED and begins in b"{[" and _depth(content) > 0


def _document(
    first: StreamLine, lines: Iterator[StreamLine | Skipped | Cut]
) -> Iterator[StreamLine | Skipped | Cut]:
    """Yield the document that a line begins as one line; without an end, its lines as they are."""
    read = [first]
    depth, size = _depth(first.content), len(first.content)
    for line in lines:
        if not isinstance(line, StreamLine):
            yield from (*read, line)
            return
        read.append(line)
        depth += _depth(line.content)
        size += len(line.content)
        if depth <= 0:
            yield StreamLine(first.number, b"\n".join(part.content for part in read), line.ended)
            return
        if size > READABLE_LINE_BYTES:
            break
    yield from read


def _depth(content: bytes) -> int:
    """Return how many more objects and arrays a line opens than it closes."""
    structure = _TEXTS.sub(b"", content)
    return sum(map(structure.count, (b"{", b"["))) - sum(map(structure.count, (b"}", b"]")))


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether a file is compressed, so that it can only be read from its start."""
    with BufferedReader(FileIO(path)) as file:
        return _compression(file) is not None


def shares(path: str | os.PathLike[str], size: int) -> list[FilePart]:
    """
    Split a file into parts of whole lines of about `size` bytes.

    A compressed file is one part, and so is one that begins with an indented document.
    """
    whole = FilePart(0, sys.maxsize)
    with BufferedReader(FileIO(path)) as file:
        total = file.seek(0, os.SEEK_END)
        file.seek(0)
        if _compression(file) is not None or _opens(file.readline(READABLE_LINE_BYTES)):
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
    Whether lines can be appended to a file, judged by its content from the byte `start` on.

    The last line must have a newline, and the last gzip member or zstd frame must be complete.
    A missing or empty file ends cleanly.
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
    """Yield the lines of an uncompressed file."""
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
            content = b""  # frees its memory before the next item is yielded
            skipped = _skip_line(file, progress)
            if skipped > _MOST_SKIPPED:
                yield Cut(number, b"", f"the line is longer than {_MOST_SKIPPED >> 30} GiB")
                return
            left -= skipped
            yield _too_long(number)
            continue
        content = content.removeprefix(_BYTE_ORDER_MARK)
        if content and not content.isspace():
            yield StreamLine(number, content[:-1] if ended else content, ended)


def _skip_line(file: _File, progress: Progress | None) -> int:
    """Read to the end of a line, or a little more than `_MOST_SKIPPED` bytes; return their number."""
    skipped = 0
    while skipped <= _MOST_SKIPPED and (piece := file.readline(_BUFFER)):
        skipped += len(piece)
        if progress is not None:
            progress(len(piece))
        if piece.endswith(b"\n"):
            break
    return skipped


def _split(chunks: Iterator[bytes | str]) -> Iterator[StreamLine | Skipped | Cut]:
    """Yield the lines of chunks; a string as the last chunk is the reason why reading stopped."""
    rest: list[bytes] = []
    number, length = 1, 0  # of the line that starts with `rest`
    for chunk in chunks:
        if isinstance(chunk, str):
            yield Cut(number, b"".join(rest), chunk)
            return
        if not length and chunk.isspace() and chunk.endswith(b"\n"):  # a file may have a billion empty lines
            number += chunk.count(b"\n")
            continue
        *ends, last = chunk.split(b"\n")
        for content in ends:
            if length + len(content) > READABLE_LINE_BYTES:
                yield _too_long(number)
            elif (content := _joined((*rest, content))) and not content.isspace():
                yield StreamLine(number, content, True)
            rest.clear()
            number, length = number + 1, 0
        length += len(last)
        if length > READABLE_LINE_BYTES:
            rest.clear()
        elif last:
            rest.append(last)
    if length > READABLE_LINE_BYTES:
        yield _too_long(number)
    elif (content := _joined(rest)) and not content.isspace():
        yield StreamLine(number, content, False)


def _too_long(number: int) -> Skipped:
    return Skipped(number, f"the line is longer than {READABLE_LINE_BYTES >> 20} MiB, and is left out")


def _joined(pieces: Iterable[bytes]) -> bytes:
    """Return a line without the byte order mark that each of several joined files may begin with."""
    return b"".join(pieces).removeprefix(_BYTE_ORDER_MARK)


def _compression(file: _File) -> Literal["gzip", "zstd"] | None:
    """Return the compression by the first bytes."""
    start = file.peek(4)[:4]
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start == _ZSTD or start[1:] == _ZSTD_SKIPPABLE else None


def _chunks(path: Path, file: _File, progress: Progress | None) -> Iterator[bytes | str]:
    """Yield the decompressed content; a string as the last chunk is the reason why reading stopped."""
    kind = _compression(file)
    if kind is None:
        return _pieces(file, _PIECE, progress)
    most = max(_PLAUSIBLE_RATIO * os.fstat(file.fileno()).st_size, _ALWAYS_READ)
    pieces = _pieces(file, _COMPRESSED_PIECE[kind], progress)
    return _limited(_decompressed(pieces, kind, _gzip if kind == "gzip" else _zstd(path)), most)


def _limited(chunks: Iterator[bytes | str], most: int) -> Iterator[bytes | str]:
    """Yield the chunks in pieces of bounded size, up to `most` bytes."""
    size = 0
    for chunk in chunks:
        if isinstance(chunk, str):
            yield chunk
            return
        for start in range(0, len(chunk), _BUFFER):
            if size >= most:
                yield f"it expands to over {_PLAUSIBLE_RATIO} times its size, which no recording does"
                return
            piece = chunk[start : start + _BUFFER]
            size += len(piece)
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
                raise_interrupt(error)
                yield f"the {name} stream is damaged: {error}"
                return
            yield content
            piece = _unpadded(decoder.unused_data) if decoder.eof else b""
    if not decoder.eof:
        yield f"the {name} stream ends too early"


def _unpadded(piece: bytes) -> bytes:
    """Return the bytes after a member without padding zeros."""
    return piece.lstrip(b"\0")


def _gzip() -> _Decoder:
    return zlib.decompressobj(wbits=31)


def _zstd(path: Path) -> Callable[[], _Decoder]:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"reading {path}") from error
    return lambda: zstandard.ZstdDecompressor().decompressobj()
