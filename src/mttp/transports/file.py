"""
File: OTLP JSON lines, one file or one per process in a directory.

Lines are appended whole: several processes may share a plain file, a compressed one belongs to one process.
What a full disk refuses is kept and tried again; a file that was deleted is made anew.
"""

from __future__ import annotations

import os
import re
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.profiles import packed
from mttp.errors import MissingExtra, TransportError
from mttp.readable import record
from mttp.transports.options import byte_count, one_of, take
from mttp.wire.otlp_json import encode_records
from mttp.wire.streams import ends_cleanly

__all__ = ["FileTransport", "open"]

_SUFFIXES = (".jsonl.gz", ".jsonl.zst", ".jsonl", ".json", ".gz", ".zst")


class _Compressor(Protocol):
    """A compressed stream, written in pieces that can each be read."""

    def piece(self, data: bytes) -> bytes:
        """`data` compressed, and everything before it flushed."""

    def end(self) -> bytes:
        """The stream's end."""


class _Plain:
    def piece(self, data: bytes) -> bytes:
        return data

    def end(self) -> bytes:
        return b""


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(wbits=31)

    def piece(self, data: bytes) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._stream.flush(zlib.Z_FINISH)


class _Zstandard:
    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtra(package="zstandard", extra="zstd", purpose="writing .zst") from error
        self._stream: Any = zstandard.ZstdCompressor().compressobj()
        self._block = zstandard.COMPRESSOBJ_FLUSH_BLOCK

    def piece(self, data: bytes) -> bytes:
        return bytes(self._stream.compress(data) + self._stream.flush(self._block))

    def end(self) -> bytes:
        return bytes(self._stream.flush())


_COMPRESSORS: Mapping[str, Callable[[], _Compressor]] = {".gz": _Gzip, ".zst": _Zstandard}


class FileTransport(SpanExporter):
    """
    Appends OTLP JSON lines to `path`, or to a file of this process's own where `path` is a directory.

    With `max_bytes` a file that has reached it is followed by the next part: `a.jsonl`, `a.1.jsonl`, `a.2.jsonl`.
    `fsync` is "never" (what is written survives the process, not the power) or "segment".
    Raises TransportError where the file can't be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        directory: bool = False,
        max_bytes: int | None = None,
        fsync: str = "never",
        suffix: str = ".jsonl",
    ) -> None:
        self.path = Path(path).absolute()
        self.directory = directory
        self._max_bytes = max_bytes
        self._fsync = fsync == "segment"
        self._suffix = suffix
        self._file = self._own_path()
        self._fd: int | None = None
        self._compressor: _Compressor = _Plain()
        try:
            self._open()
        except OSError as error:
            raise TransportError(f"can't write {self._file}: {error.strerror or error}") from error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the spans; raises OSError when the disk refuses, and nothing of the refused line is left."""
        self._ensure_open()
        for line in encode_records(record(span, packed) for span in spans):
            self._append(self._compressor.piece(line))
        if self._fsync and self._fd is not None:
            os.fsync(self._fd)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """End the stream and close the file."""
        if self._fd is not None:
            self._append(self._compressor.end())
            self._close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Nothing waits: every export is written."""
        return True

    def after_fork(self) -> None:
        """In a forked child: leave the parent's stream alone; a plain single file is shared."""
        if self.directory or not isinstance(self._compressor, _Plain):
            self._close()
            self._file = self._own_path() if self.directory else self.path

    def __repr__(self) -> str:
        return f"file://{self.path}{'/' if self.directory else ''}"

    # Which file.

    def _own_path(self) -> Path:
        if not self.directory:
            return self.path
        host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname()) or "host"
        return self.path / f"{host}-{os.getpid()}-{os.urandom(3).hex()}{self._suffix}"

    def _part(self, number: int) -> Path:
        """The file's `number`th part; the first one has no number."""
        base = self.path if not self.directory else self._file
        if number == 0:
            return base
        suffix = next((end for end in _SUFFIXES if base.name.endswith(end)), base.suffix)
        return base.with_name(f"{base.name.removesuffix(suffix)}.{number}{suffix}")

    # The file.

    def _ensure_open(self) -> None:
        """Open the next part where this one is full, and the same one where it was deleted."""
        if self._fd is not None and self._is_gone():
            self._close()
        elif self._fd is not None and self._max_bytes and os.fstat(self._fd).st_size >= self._max_bytes:
            self._append(self._compressor.end())
            self._close()
            self._open(fresh=True)
        if self._fd is None:
            self._open()

    def _is_gone(self) -> bool:
        assert self._fd is not None
        try:
            there, mine = self._current.stat(), os.fstat(self._fd)
        except FileNotFoundError:
            return True
        return (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev)

    def _open(self, *, fresh: bool = False) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        factory = _COMPRESSORS.get(self._file.suffix, _Plain)
        number = 0
        while not self._usable(self._part(number), fresh=fresh, compressed=factory is not _Plain):
            number += 1
        self._current = self._part(number)
        self._fd = os.open(self._current, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._compressor = factory()
        if isinstance(self._compressor, _Plain):
            self._end_torn_line()

    def _usable(self, part: Path, *, fresh: bool, compressed: bool) -> bool:
        """Whether lines may be appended: not to a full part, nor to a compressed stream cut or in use."""
        if not part.exists() or not part.is_file():
            return True
        size = part.stat().st_size
        if size == 0:
            return not (fresh and compressed)
        if fresh and part == self._current:
            return False
        if self._max_bytes and size >= self._max_bytes:
            return False
        return not compressed or ends_cleanly(part)

    def _end_torn_line(self) -> None:
        """After a crash the file may end within a line: start on a new one."""
        assert self._fd is not None
        if not self._current.is_file() or (size := self._current.stat().st_size) == 0:
            return
        with self._current.open("rb") as file:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                os.write(self._fd, b"\n")

    def _append(self, data: bytes) -> None:
        """Write all of `data`, or none."""
        assert self._fd is not None
        before, rest = os.fstat(self._fd).st_size, memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            written = len(data) - len(rest)
            if written and os.fstat(self._fd).st_size == before + written:
                os.ftruncate(self._fd, before)
            raise

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def open(path: str, options: Mapping[str, str]) -> FileTransport:
    """A file, or a directory where the path ends in a slash or names one."""
    if not path.strip("/"):
        raise TransportError("no path; write file://runs/a.jsonl or file://runs/")
    parsed = take(
        options,
        max_bytes=byte_count,
        fsync=one_of("never", "segment"),
        suffix=one_of(".jsonl", ".jsonl.gz", ".jsonl.zst"),
    )
    return FileTransport(path, directory=path.endswith("/") or Path(path).is_dir(), **parsed)  # type: ignore[arg-type]
