"""
Writes OTLP JSON lines to one file, or to one file per process in a directory.

A segment is appended whole or not at all: as lines, or in a compressed file as a gzip member or zstd frame.
Segments that were written stay readable if the writer dies, and several processes may share a file.
To what is no regular file, such as a pipe, segments are written once, as fast as it is read.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EBADF, ENXIO, EPIPE
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.errors import MissingExtra, TransportError
from mttp.model import clock
from mttp.model.log import log
from mttp.otlp.descriptors import Descriptor
from mttp.otlp.encoding import encoder
from mttp.otlp.frames import Frame
from mttp.otlp.json import encode_records
from mttp.otlp.spans.span_records import framed
from mttp.otlp.streams import READABLE_LINE_BYTES, ends_cleanly
from mttp.transports.append_stream import AppendStream, CutStreamError, is_stream
from mttp.transports.export_target import taking_frames
from mttp.transports.options import ByteCount, path_of, take, with_query
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.shrinking import smaller

try:
    import fcntl
except ImportError:  # not on Windows: there a file belongs to one process
    fcntl = None  # type: ignore[assignment]

__all__ = ["FileTransport", "open", "process_name", "readable_lines"]


Buffer: TypeAlias = bytes | bytearray

LOCK_SECONDS = 5.0
"""How long to wait for the lock of another process before the next part is used."""
_UNKNOWN = -1
"""The end of the file after this process's last segment, before there is one."""
_CHECKED_BYTES = 64 * 1024 * 1024
"""Size of a compressed file beyond which its end is not checked; the next part is used instead."""


_GZIP_LEVEL, _ZSTD_LEVEL = 3, 1
"""Compression levels; higher ones save a few percent and take two to four times as long."""


def _plain(data: Buffer) -> Buffer:
    return data


def _gzip(data: Buffer) -> Buffer:
    stream = zlib.compressobj(_GZIP_LEVEL, wbits=31)
    return stream.compress(data) + stream.flush()


def _zstandard() -> Callable[[Buffer], Buffer]:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(package="zstandard", extra="zstd", purpose="writing .zst") from error
    compress: Callable[[Buffer], Buffer] = zstandard.ZstdCompressor(_ZSTD_LEVEL, write_checksum=True).compress
    return compress


class FileTransport(SpanExporter):
    """
    Appends OTLP JSON lines to the file `path`, or to a new file for this process if `path` is a directory.

    A file that has reached `max_bytes` is followed by the next part: a.jsonl, a.1.jsonl, a.2.jsonl.
    `fsync` is "never" (written spans survive the process, not a power loss) or "segment".
    `suffix` is the suffix of files in a directory, and selects their compression.
    `mode` is the permissions of new files.
    Raises TransportError if the file can't be opened, and MissingExtra for .zst without zstandard.
    """

    name = "file"
    """Its name in counters."""
    takes_columns = True
    """Whether steps without handles are exported as columns, unless their episode has `steps="spans"`."""

    writes_lines = True
    """Whether frames are written as JSON."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        directory: bool = False,
        max_bytes: ByteCount | None = None,
        fsync: Literal["never", "segment"] = "never",
        suffix: Literal[".jsonl", ".jsonl.gz", ".jsonl.zst"] = ".jsonl",
        mode: int = 0o644,
    ) -> None:
        self._max_bytes = max_bytes
        self._fsync = fsync == "segment"
        self._suffix = suffix
        self._mode = mode
        self._file: Descriptor | None = None
        self._stream: AppendStream | None = None
        """The open file if it is a stream."""
        try:
            self.path = Path(path).expanduser().absolute()
            self.directory = directory or self.path.is_dir()
            self._begin()
            with suppress(_NoReaderError):  # one may come
                self._open()
        except (
            OSError,
            ValueError,
            RuntimeError,
        ) as error:  # an impossible path, or an unknown home directory
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise TransportError(
                f"can't write {os.fspath(path)}: {reason}; choose another place, or make this one writable"
            ) from error

    @property
    def address(self) -> str:
        """The address with an absolute path and its options, for other processes."""
        options: dict[str, object] = {"max_bytes": self._max_bytes} if self._max_bytes else {}
        options |= {"fsync": "segment"} if self._fsync else {}
        options |= {"suffix": self._suffix} if self.directory and self._suffix != ".jsonl" else {}
        path = f"file://{quote(str(self.path))}{'/' if self.directory else ''}"
        return with_query(path, options)

    @taking_frames
    def export(self, spans: Sequence[ReadableSpan | Frame]) -> SpanExportResult:
        """
        Append the spans; raises OSError if writing fails, and then the file has none of them.

        A span that exceeds `READABLE_LINE_BYTES` is written without its long values.
        Raises PartialExport if a span is still too long; the others are written.
        """
        frames = list(map(framed, spans))
        lines, too_large = readable_lines(frames)
        try:
            self.append(lines)
        except CutStreamError as error:
            lost = RejectedSpans("write_failed", len(frames), len({frame.trace_id for frame in frames}))
            raise PartialExport(str(error), rejections=[lost]) from error
        if count := len(too_large):
            message = f"{count} spans exceed the longest readable line, {READABLE_LINE_BYTES} bytes"
            raise PartialExport(message, rejections=[RejectedSpans("too_large", count, count)])
        return SpanExportResult.SUCCESS

    def append(self, data: Buffer) -> None:
        """Append whole lines; raises OSError."""
        if data:
            with self._lock:
                segment = self._compress(data)
                while not self._append(self._ready(), segment):
                    self._move_on()

    def shutdown(self) -> None:
        """Close the file."""
        self._closing.set()
        with self._lock:
            self._close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` writes synchronously."""
        return True

    def after_fork(self) -> None:
        """In a forked child: open a new file in a directory, or share the parent's file."""
        self._close()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._first = self._own_file()
        self._number = 0
        self._compress, self._is_compressed = _compression(self._first)

    def __repr__(self) -> str:
        return f"file://{self.path}{'/' if self.directory else ''}"

    # Selecting the file.

    def _own_file(self) -> Path:
        if not self.directory:
            return self.path
        return self.path / f"{process_name()}{self._suffix}"

    def _part(self, number: int) -> Path:
        """Return the path of a part of the file; the first part, 0, has no number."""
        ends = self._first.suffixes[-2 if self._is_compressed else -1 :]
        suffix = "".join(ends)
        stem = self._first.name.removesuffix(suffix)
        return self._first.with_name(f"{stem}.{number}{suffix}") if number else self._first

    def _ready(self) -> int:
        """Return the open file: the next part if this one is full, a new one if it was deleted."""
        if self._file is not None:
            if not self._file.is_ours:
                log.warning(
                    "mttp: the program has closed the descriptor of %s, which is opened again", self._current
                )
                self._close()
            elif self._stream is None or self._stream.is_named:
                self._check_path(self._file)
        return self._open() if self._file is None else self._file.number

    def _check_path(self, file: Descriptor) -> None:
        """Close the file if it is full, deleted or replaced."""
        status = self._stat()  # in one call: each releases the GIL
        if status is None or not os.path.samestat(status, file.opened):
            log.warning("mttp: %s was deleted or replaced; recording continues in a new file", self._current)
            self._close()
            self._number = 0
        elif self._stream is None and self._is_full(status.st_size):
            self._close()

    def _stat(self) -> os.stat_result | None:
        try:
            return self._current.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _is_full(self, size: int) -> bool:
        return self._max_bytes is not None and size >= self._max_bytes

    def _open(self) -> int:
        if is_stream(self._first):
            return self._open_stream()
        self._first.parent.mkdir(parents=True, exist_ok=True)
        while not self._is_usable(self._part(self._number)):
            self._number += 1
        self._current = self._part(self._number)
        is_new = not self._current.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = Descriptor(os.open(self._current, flags, self._mode))
        self._end = self._file.opened.st_size if self._is_compressed else _UNKNOWN
        if self._fsync and is_new:
            _sync_directory(self._current.parent)
        return self._file.number

    def _open_stream(self) -> int:
        self._current = self._first
        try:
            self._stream = AppendStream(self._current, self._closing)
        except OSError as error:
            if error.errno == ENXIO:
                raise _NoReaderError(ENXIO, "the pipe has no reader", str(self._current)) from error
            raise
        self._file = self._stream.descriptor
        return self._file.number

    def _move_on(self) -> None:
        """Close this part; the next write opens the next part."""
        self._close()
        self._number += 1

    def _is_usable(self, part: Path) -> bool:
        """Whether a part can be appended to: it is not full, and a compressed one ends cleanly."""
        if not part.is_file():
            return True
        size = part.stat().st_size
        if self._is_full(size):
            return False
        return not self._is_compressed or (size <= _CHECKED_BYTES and ends_cleanly(part))

    def _close(self) -> None:
        file, self._file, self._stream = self._file, None, None
        if file is not None:
            with suppress(OSError):
                file.close()

    # Writing.

    def _is_torn(self, fd: int) -> bool:
        """Whether the file ends within a line or a frame because its writer died."""
        size = os.fstat(fd).st_size
        if size in (0, self._end):
            return False
        if self._is_compressed:
            since = self._end if size > self._end else 0
            return size - since > _CHECKED_BYTES or not ends_cleanly(self._current, start=since)
        os.lseek(fd, -1, os.SEEK_END)
        return os.read(fd, 1) != b"\n"

    def _append(self, fd: int, data: Buffer) -> bool:
        """Write all of `data` or nothing; return False if the next part has to be used."""
        if self._stream is not None:
            self._append_to_stream(self._stream, data)
            return True
        with _locked(fd) as is_locked:
            if not is_locked:
                log.warning(
                    "mttp: another process has locked %s for %g s; recording continues in the next part",
                    self._current,
                    LOCK_SECONDS,
                )
                return False
            if self._is_torn(fd):
                if self._is_compressed:
                    return False
                os.write(fd, b"\n")
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if self._fsync:
                    os.fsync(fd)
            except BaseException:
                self._withdraw(fd, len(data) - len(rest))
                raise
            self._end = os.lseek(fd, 0, os.SEEK_CUR)
            return True

    def _append_to_stream(self, stream: AppendStream, data: Buffer) -> None:
        try:
            stream.write(data)
        except OSError as error:
            if error.errno in (EBADF, EPIPE):  # it is opened again, since another reader may come
                self._close()
            raise

    def _withdraw(self, fd: int, written: int) -> None:
        """Truncate a partly written segment; if that fails, reopen the file and check its end."""
        if not written:
            return
        try:
            end = os.lseek(fd, 0, os.SEEK_CUR)  # each write leaves the position at its end
            if os.fstat(fd).st_size == end:
                os.ftruncate(fd, end - written)
                return
        except OSError:
            pass
        self._close()


class _NoReaderError(OSError):
    """A pipe has no reader yet."""


def process_name() -> str:
    """Return a new name for a file of this process: host, process id and a random part."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname()) or "host"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"


def readable_lines(frames: Sequence[Frame]) -> tuple[bytes, Sequence[Frame]]:
    """Return spans as lines, long ones reduced until readers accept them, and those that stay too long."""
    lines = encoder.lines(frames)
    if len(lines) <= READABLE_LINE_BYTES:
        return lines, ()
    each = list(map(_readable_line, frames))
    return b"".join(each), [frame for frame, line in zip(frames, each, strict=True) if not line]


def _readable_line(frame: Frame) -> bytes:
    """Return the line of the span, reduced until readers accept it; empty if it stays too long."""
    line = encoder.lines([frame])
    forms = smaller(frame, f"the span has {len(line)} bytes, more than a line may have")
    while len(line) > READABLE_LINE_BYTES:
        form = next(forms, None)
        line = b"" if form is None else b"".join(encode_records([form]))
    return line


def _compression(path: Path) -> tuple[Callable[[Buffer], Buffer], bool]:
    if path.suffix == ".zst":
        return _zstandard(), True
    return (_gzip, True) if path.suffix == ".gz" else (_plain, False)


@contextmanager
def _locked(fd: int) -> Iterator[bool]:
    """
    Hold the file's lock within the block; False if another process holds it for `LOCK_SECONDS`.

    On a file system without locks the value is True.
    """
    if fcntl is None:
        yield True
        return
    try:
        yield _lock(fd)
    finally:
        with suppress(OSError):
            fcntl.lockf(fd, fcntl.LOCK_UN)


def _lock(fd: int) -> bool:
    """Wait for the lock; return False after `LOCK_SECONDS`."""
    end, pause = clock.seconds() + LOCK_SECONDS, 0.0005
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: another process has it
            if clock.seconds() > end:
                return False
            clock.sleep(pause)
            pause = min(2 * pause, 0.05)
        except OSError:
            return True
        else:
            return True


def _sync_directory(directory: Path) -> None:
    """Make the directory entry of a new file durable."""
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def open(address: str, options: Mapping[str, object], *, mode: int = 0o644) -> FileTransport:
    """Open a file, or a directory if the path ends in a slash or is one; `mode` is for new files."""
    path = unquote(path_of(address))
    if not path.strip("/"):
        raise TransportError("no path; write file://runs/a.jsonl or file://runs/")
    return FileTransport(path, directory=path.endswith("/"), mode=mode, **take(options, FileTransport))
