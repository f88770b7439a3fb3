"""The folder of one process in a spool: files of OTLP JSON lines that are sent in order, and deleted."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOENT, ENOLCK, ENOSPC
from pathlib import Path

from typing_extensions import Self

from mttp.model import clock
from mttp.model.log import log
from mttp.model.spans import SpanRecord
from mttp.otlp import regular_files
from mttp.otlp.descriptors import Descriptor, above_standard
from mttp.otlp.json_decode import LineError, decode_documents
from mttp.otlp.streams import READABLE_LINE_BYTES
from mttp.otlp.whole_files import PARTIAL_PREFIX, replacing
from mttp.transports.file import process_name

try:
    import fcntl
except ImportError:  # not on Windows, where `Spool` raises an error
    fcntl = None  # type: ignore[assignment]

__all__ = ["OWNER", "SpoolBatch", "SpoolDestination", "SpoolFolder", "check_locks", "destination_of", "lock"]


OWNER = "owner"
"""The file in a folder that its owner locks, and that names the receiver."""
_SENT = "sent"
"""The file with the position up to which the spans were sent."""
FILE_BYTES = 16 * 2**20
"""Size from which lines are appended to the next file; a file is deleted once its spans were sent."""
_MAX_OWNER = 1 << 16
_FILE = re.compile(r"([0-9]{6,9})\.jsonl")
_ONE_PER_SPAN = b'"startTimeUnixNano"'
"""Stands once in each span of a line; in recorded text its quotes would be escaped."""


@dataclass(frozen=True, slots=True)
class SpoolDestination:
    """Where the spans of a folder are to be sent."""

    to: str
    """The receiver's URL, without secrets."""
    profile: str
    """The name of the receiver's profile."""


@dataclass(frozen=True, slots=True)
class SpoolBatch:
    """The spans of the next lines of a folder."""

    records: list[SpanRecord]
    """The spans, in the order in which they were appended."""
    damaged: int
    """How many more spans the lines have, or had, that can't be read."""
    bytes: int
    """The size of the lines."""


class SpoolFolder:
    """
    Spans that wait on disk, in the order in which they were appended.

    Its owner has locked the file `owner`; the lock ends with the process.
    """

    def __init__(self, path: Path, destination: SpoolDestination, locked: int) -> None:
        """`locked` is the descriptor of its locked file `owner`."""
        self.path = path
        """The folder."""
        self.destination = destination
        """Where its spans are to be sent."""
        self._locked: Descriptor | None = Descriptor(locked)
        self._file_in_use: Descriptor | None = None
        self._last = max(self._numbers(), default=0)
        self._number, self._offset = self._position()
        self._next = self._number, self._offset

    @classmethod
    def create(cls, directory: Path, destination: SpoolDestination) -> Self:
        """Create a folder of this process; raises OSError."""
        path = directory / f"{clock.wall()}-{process_name()}"
        path.mkdir(mode=0o700, parents=True)
        try:
            return cls._created(path, destination)
        except OSError:
            with suppress(OSError):
                (path / OWNER).unlink()
            path.rmdir()
            raise

    @classmethod
    def _created(cls, path: Path, destination: SpoolDestination) -> Self:
        """Lock and write the file `owner` of a new folder; raises OSError."""
        fd = above_standard(os.open(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            lock(fd)
            about = json.dumps({"to": destination.to, "profile": destination.profile}).encode()
            if os.write(fd, about) < len(about):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return cls(path, destination, fd)
        except OSError:
            os.close(fd)
            raise

    @classmethod
    def adopt(cls, path: Path, *, to: str | None = None) -> Self | None:
        """
        Take over the folder of a process that has ended.

        Return None if its process still runs, if the folder is gone, damaged or read-only, or is for another
        receiver than `to`.
        """
        destination = destination_of(path)
        if destination is None or to not in (None, destination.to) or not os.access(path, os.W_OK):
            return None
        try:
            fd = _locked(path)
        except OSError:
            return None
        try:
            return cls(path, destination, fd)
        except OSError:
            os.close(fd)
            return None

    def is_held(self) -> bool:
        """Whether this process has the lock; it is taken again if the program has closed its descriptor."""
        if self._locked is not None and not self._locked.is_ours:
            try:
                self._locked = Descriptor(_locked(self.path))
            except OSError:
                self._locked = None
        return self._locked is not None

    # Writing.

    def append(self, lines: bytes | bytearray) -> None:
        """Append whole lines; raises OSError, and then none of them is appended."""
        fd = self._open().number
        start, rest = os.fstat(fd).st_size, memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except BaseException:
            try:
                os.ftruncate(fd, start)
            except OSError:  # it ends within a line: the next lines go to a new file
                self._close_file()
            raise

    def _open(self) -> Descriptor:
        if self._file_in_use is not None and self._is_usable(self._file_in_use):
            return self._file_in_use
        self._close_file()
        self._last += 1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._file_in_use = Descriptor(os.open(self._file(self._last), flags, 0o600))
        return self._file_in_use

    @staticmethod
    def _is_usable(file: Descriptor) -> bool:
        """Whether the file is not full, and neither deleted nor closed by the program."""
        if not file.is_ours:
            return False
        status = os.fstat(file.number)
        return status.st_size < FILE_BYTES and status.st_nlink > 0

    # Sending.

    def take(self, max_bytes: int) -> SpoolBatch | None:
        """
        Return the spans of the next lines, about `max_bytes` of them; None if all were sent.

        The same come again until `advance` is called. Raises OSError if a file can't be read now.
        """
        for number in self._numbers():
            if number < self._number:
                continue
            offset = self._offset if number == self._number else 0
            try:
                lines = self._read(number, offset, max_bytes)
            except FileNotFoundError:
                continue
            if lines:
                size = sum(map(len, lines))
                self._next = number, offset + size
                return self._decoded(lines, self._file(number), size)
        return None

    def _read(self, number: int, offset: int, max_bytes: int) -> list[bytes]:
        lines: list[bytes] = []
        with self._file(number).open("rb") as file:
            file.seek(offset)
            while max_bytes > 0 and (line := file.readline(READABLE_LINE_BYTES)):
                lines.append(line)
                max_bytes -= len(line)
        return lines

    @staticmethod
    def _decoded(lines: list[bytes], file: Path, size: int) -> SpoolBatch:
        records: list[SpanRecord] = []
        damaged = 0
        for line in lines:
            good, reason = _spans_of(line)
            records += good
            if reason:
                damaged += max(line.count(_ONE_PER_SPAN) - len(good), 1)
                log.warning("mttp: %s: spans of a damaged line can't be sent: %s", file, reason)
        return SpoolBatch(records, damaged, size)

    def advance(self, *, delete: bool = True) -> None:
        """Go beyond the spans of the last `take`; store that they were sent, unless `delete` is False."""
        self._number, self._offset = self._next
        if not delete or self._locked is None:  # another process may own the folder by now
            return
        with suppress(OSError), replacing(self.path / _SENT, mode=0o600) as partial:
            partial.write_text(f"{self._number} {self._offset}")
        with suppress(OSError):
            for number in self._numbers():
                if number < self._number:
                    self._file(number).unlink()

    def close(self) -> None:
        """Unlock the folder; another process may then take it over."""
        self._close_file()
        locked, self._locked = self._locked, None
        if locked is not None:
            with suppress(OSError):
                locked.close()

    def remove(self) -> None:
        """Delete its files, and the folder unless somebody else's files are in it."""
        with suppress(OSError):
            for number in self._numbers():
                self._file(number).unlink()
            for partial in self.path.glob(f"{PARTIAL_PREFIX}*"):
                partial.unlink(missing_ok=True)
            for name in (_SENT, OWNER):  # it is a folder of the spool until nothing can be sent
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()
        self.close()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:06}.jsonl"

    def _numbers(self) -> list[int]:
        """Return the numbers of its files, the oldest first; raises OSError if they can't be listed."""
        try:
            matches = [(_FILE.fullmatch(path.name), path) for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match, path in matches if match and path.is_file())

    def _position(self) -> tuple[int, int]:
        """Return the number of a file and the offset in it up to which lines were sent."""
        try:
            number, offset = map(int, regular_files.read(self.path / _SENT, _MAX_OWNER).split())
            if 0 <= offset <= self._file(number).stat().st_size:
                return number, offset
        except (OSError, ValueError):
            pass
        return 0, 0

    def _close_file(self) -> None:
        file, self._file_in_use = self._file_in_use, None
        if file is not None:
            with suppress(OSError):
                file.close()


def destination_of(path: Path) -> SpoolDestination | None:
    """Return where the spans of a folder are to be sent; None if it is not the folder of a spool."""
    try:
        owner = json.loads(regular_files.read(path / OWNER, _MAX_OWNER))
        return SpoolDestination(str(owner["to"]), str(owner["profile"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _locked(path: Path) -> int:
    """Open and lock the file `owner` of a folder; raises OSError."""
    fd = above_standard(os.open(path / OWNER, os.O_RDWR))
    try:
        lock(fd)
        if not os.fstat(fd).st_nlink:  # another process has sent everything meanwhile
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
    except OSError:
        os.close(fd)
        raise
    return fd


def lock(fd: int) -> None:
    """Lock a file until it is closed; raises OSError if another process has it, or there are no locks."""
    if fcntl is None:
        raise OSError(ENOLCK, "this system has no file locks")
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_locks(path: Path) -> None:
    """Create a directory, and lock a file in it; raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = path / f".{process_name()}"
    try:
        fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            lock(fd)
        finally:
            os.close(fd)
    finally:
        probe.unlink(missing_ok=True)


def _spans_of(line: bytes) -> tuple[list[SpanRecord], str]:
    """Return the spans of a line that can be read, and why others can't; empty if all can."""
    try:
        good, reasons = decode_documents(line)
    except LineError as error:
        return [], str(error)
    return good, reasons[0] if reasons else ""
