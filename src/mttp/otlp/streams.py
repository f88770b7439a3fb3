"""
Reads lines of plain, gzip and zstd files in constant memory, up to the place where a crash cut the file.

Compression is detected by the first bytes, not by the name.
A file may have several gzip members or zstd frames, since each write appends one.
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
Bytes read at once, small because their decompressed content is held in memory.

gzip expands by a factor of up to 1,032; a zstd block of 4 bytes can become 128 KiB.
"""
_PLAUSIBLE_RATIO, _ALWAYS_READ = 1000, 1 << 30
"""Limits of decompression, as a factor and in bytes; recordings expand by a factor of 5 to 50."""
READABLE_LINE_BYTES = 1 << 28
"""Maximum bytes of a line with its end; longer lines are skipped, and must not be written."""
_MOST_SKIPPED = 1 << 34
"""Bytes without a newline after which reading stops, because the file may be an endless device."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StreamLine(NamedTuple):
    """One line of a file."""

    number: int
    """Its place in the file, from 1."""
    content: bytes
    """Its bytes without the newline."""
    ended: bool
    """Whether a newline followed: False only for the last line of a file, which may be cut short."""


class Skipped(NamedTuple):
    """A skipped line."""

    number: int
    """Its place in the file, from 1."""
    reason: str
    """Why it was skipped."""


class Cut(NamedTuple):
    """The last item if the rest of a file can't be read."""

    number: int
    """The number of the line in which reading stopped."""
    content: bytes
    """The part of that line that was read."""
    reason: str
    """Why reading stopped."""


class FilePart(NamedTuple):
    """A part of a plain file."""

    start: int
    """Offset of its first byte, which starts a line."""
    end: int
    """Offset before which its last line starts."""


Progress = Callable[[int], object]
"""Called with the number of bytes of each read."""


class _Decoder(Protocol):
    """Decompresses one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def read_lines(
    path: str | os.PathLike[str], *, share: FilePart | None = None, progress: Progress | None = None
) -> Iterator[StreamLine | Skipped | Cut]:
    """
    Iterate over the nonempty lines of a file, or of a `share` of it, numbered from 1.

    A line that is too long is replaced by a `Skipped`.
    If the file can't be read to its end, the last item is a `Cut`.
    """
    keep_freed()
    path = Path(path)
    with BufferedReader(FileIO(path), _BUFFER) as file:
        if _compression(file) is None:
            yield from _plain(file, share or FilePart(0, sys.maxsize), progress)
        else:
            yield from _split(_chunks(path, file, progress))


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether a file is compressed, so that it can be read only from its start."""
    with BufferedReader(FileIO(path)) as file:
        return _compression(file) is not None


def shares(path: str | os.PathLike[str], size: int) -> list[FilePart]:
    """Split a file into parts of whole lines of about `size` bytes; a compressed file is one part."""
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
    Whether the file can be appended to, checking from the byte `start`.

    Its last line must have a newline, and its last gzip member or zstd frame must be complete.
    An empty or missing file ends cleanly.
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
    """Iterate over the lines of a plain file."""
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
            content = b""  # frees its memory before the next item
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
    """Read to the end of a line, or a little over `_MOST_SKIPPED` bytes; return the number of bytes."""
    skipped = 0
    while skipped <= _MOST_SKIPPED and (piece := file.readline(_BUFFER)):
        skipped += len(piece)
        if progress is not None:
            progress(len(piece))
        if piece.endswith(b"\n"):
            break
    return skipped


def _split(chunks: Iterator[bytes | str]) -> Iterator[StreamLine | Skipped | Cut]:
    """Split chunks into lines; a chunk of type str is an error that ends the file."""
    rest: list[bytes] = []
    number, length = 1, 0  # of the line that starts with `rest`
    for chunk in chunks:
        if isinstance(chunk, str):
            yield Cut(number, b"".join(rest), chunk)
            return
        if not length and chunk.isspace() and chunk.endswith(b"\n"):  # a file may have very many empty lines
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
    return Skipped(number, f"the line is longer than {READABLE_LINE_BYTES >> 20} MiB, and is skipped")


def _without_mark(content: bytes) -> bytes:
    return content.removeprefix(_BYTE_ORDER_MARK)


def _compression(file: _File) -> Literal["gzip", "zstd"] | None:
    """Return the compression by the first bytes."""
    start = file.peek(4)[:4]
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start == _ZSTD or start[1:] == _ZSTD_SKIPPABLE else None


def _chunks(path: Path, file: _File, progress: Progress | None) -> Iterator[bytes | str]:
    """Iterate over the decompressed content; a chunk of type str is an error that ends the file."""
    kind = _compression(file)
    if kind is None:
        return _pieces(file, _PIECE, progress)
    most = max(_PLAUSIBLE_RATIO * os.fstat(file.fileno()).st_size, _ALWAYS_READ)
    pieces = _pieces(file, _COMPRESSED_PIECE[kind], progress)
    return _limited(_decompressed(pieces, kind, _gzip if kind == "gzip" else _zstd(path)), most)


def _limited(chunks: Iterator[bytes | str], most: int) -> Iterator[bytes | str]:
    """Split chunks into pieces of a bounded size, up to `most` bytes in all."""
    taken = 0
    for chunk in chunks:
        if isinstance(chunk, str):
            yield chunk
            return
        for start in range(0, len(chunk), _BUFFER):
            if taken >= most:
                yield f"its content is over {_PLAUSIBLE_RATIO} times as long, unlike that of a recording"
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
    """Return the bytes after a member, without padding by zeros."""
    return piece.lstrip(b"\0")


def _gzip() -> _Decoder:
    return zlib.decompressobj(wbits=31)


def _zstd(path: Path) -> Callable[[], _Decoder]:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose=f"reading {path}") from error
    return lambda: zstandard.ZstdDecompressor().decompressobj()
