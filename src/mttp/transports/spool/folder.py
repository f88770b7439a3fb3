"""The folder of one process in a spool: files of OTLP JSON lines that are sent in order, and deleted."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOLCK, ENOSPC
from pathlib import Path

from typing_extensions import Self

from mttp.model.spans import SpanRecord
from mttp.otlp import regular_files
from mttp.otlp.json_decode import LineError, decode_line, decode_spans
from mttp.otlp.streams import READABLE_LINE_BYTES
from mttp.transports.file import process_name

try:
    import fcntl
except ImportError:  # not on Windows, where `Spool` raises an error
    fcntl = None  # type: ignore[assignment]

__all__ = ["OWNER", "SpoolDestination", "SpoolFolder", "check_locks", "destination_of", "lock", "spans_of"]

_log = logging.getLogger("mttp")

OWNER = "owner"
"""The file in a folder that its owner locks, and that names the receiver."""
_SENT = "sent"
"""The file with the position up to which the spans were sent."""
FILE_BYTES = 16 * 2**20
"""Size from which lines are appended to the next file; a file is deleted once its spans were sent."""
_MAX_OWNER = 1 << 16
_FILE = re.compile(r"([0-9]{6,9})\.jsonl")


@dataclass(frozen=True, slots=True)
class SpoolDestination:
    """Where the spans of a folder are to be sent."""

    to: str
    """The receiver's URL, without secrets."""
    profile: str
    """The name of the receiver's profile."""


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
        self._locked: int | None = locked
        self._fd: int | None = None
        self._last = max(self._numbers(), default=0)
        self._number, self._offset = self._position()
        self._next = self._number, self._offset

    @classmethod
    def create(cls, directory: Path, destination: SpoolDestination) -> Self:
        """Create a folder of this process; raises OSError."""
        path = directory / f"{time.time_ns()}-{process_name()}"
        path.mkdir(mode=0o700, parents=True)
        try:
            fd = os.open(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            path.rmdir()
            raise
        folder = cls(path, destination, fd)
        try:
            lock(fd)
            about = json.dumps({"to": destination.to, "profile": destination.profile}).encode()
            if os.write(fd, about) < len(about):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        except OSError:
            folder.remove()
            raise
        return folder

    @classmethod
    def adopt(cls, path: Path, *, to: str | None = None) -> Self | None:
        """
        Take over the folder of a process that has ended.

        Return None if its process still runs, if the folder is gone or damaged, or is for another receiver
        than `to`.
        """
        destination = destination_of(path)
        if destination is None or to not in (None, destination.to):
            return None
        try:
            fd = os.open(path / OWNER, os.O_RDWR)
        except OSError:
            return None
        try:
            lock(fd)
            if os.fstat(fd).st_nlink:  # else another process has sent everything meanwhile
                return cls(path, destination, fd)
        except OSError:
            pass
        os.close(fd)
        return None

    # Writing.

    def append(self, lines: bytes | bytearray) -> None:
        """Append whole lines; raises OSError, and then none of them is appended."""
        fd = self._open()
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

    def _open(self) -> int:
        if self._fd is not None and self._is_usable(self._fd):
            return self._fd
        if self._fd is not None:
            self._close_file()
        self._last += 1
        self._fd = os.open(self._file(self._last), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        return self._fd

    @staticmethod
    def _is_usable(fd: int) -> bool:
        """Whether the file is not full, and was not deleted."""
        found = os.fstat(fd)
        return found.st_size < FILE_BYTES and found.st_nlink > 0

    # Sending.

    def take(self, max_bytes: int) -> list[bytes]:
        """
        Return the next lines, about `max_bytes` of them; none if all were sent.

        The same lines come again until `advance` is called. A file that can't be read is skipped.
        """
        for number in self._numbers():
            offset = self._offset if number == self._number else 0
            try:
                lines, end = self._read(number, offset, max_bytes) if number >= self._number else ([], 0)
            except OSError as error:
                _log.warning("mttp: %s can't be read: %s", self._file(number), error.strerror)
                continue
            if lines:
                self._next = number, end
                return lines
        return []

    def _read(self, number: int, offset: int, max_bytes: int) -> tuple[list[bytes], int]:
        lines, end = [], offset
        with self._file(number).open("rb") as file:
            file.seek(offset)
            while end - offset < max_bytes and (line := file.readline(READABLE_LINE_BYTES)):
                if not line.endswith(b"\n"):
                    _log.warning("mttp: %s ends within a line, which is skipped", self._file(number))
                    break
                lines.append(line)
                end += len(line)
        return lines, end

    def advance(self, *, delete: bool = True) -> None:
        """Go beyond the lines of the last `take`; store that they were sent, unless `delete` is False."""
        self._number, self._offset = self._next
        if not delete or self._locked is None:  # another process may own the folder by now
            return
        with suppress(OSError):
            partial = self.path / f"{_SENT}.partial"
            partial.write_text(f"{self._number} {self._offset}")
            partial.replace(self.path / _SENT)
        for number in self._numbers():
            if number < self._number:
                self._file(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folder; another process may then take it over."""
        self._close_file()
        locked, self._locked = self._locked, None
        if locked is not None:
            with suppress(OSError):
                os.close(locked)

    def remove(self) -> None:
        """Delete the folder."""
        with suppress(OSError):
            for path in self.path.iterdir():
                if path.name != OWNER:
                    path.unlink(missing_ok=True)
            (self.path / OWNER).unlink(missing_ok=True)
            self.path.rmdir()
        self.close()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:06}.jsonl"

    def _numbers(self) -> list[int]:
        found = (_FILE.fullmatch(path.name) for path in self.path.glob("*.jsonl"))
        return sorted(int(match[1]) for match in found if match)

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
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)


def destination_of(path: Path) -> SpoolDestination | None:
    """Return where the spans of a folder are to be sent; None if it is not the folder of a spool."""
    try:
        found = json.loads(regular_files.read(path / OWNER, _MAX_OWNER))
        return SpoolDestination(str(found["to"]), str(found["profile"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


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


def spans_of(lines: list[bytes]) -> Iterator[SpanRecord]:
    """Yield the spans of lines; a damaged span is logged and skipped."""
    for line in lines:
        try:
            yield from decode_line(line)
        except LineError as error:
            good, faults = _readable(line)
            reason = faults[0] if faults else str(error)
            _log.warning("mttp: spans of a damaged line of the spool are skipped: %s", reason)
            yield from good


def _readable(line: bytes) -> tuple[list[SpanRecord], list[str]]:
    """Return the valid spans of a damaged line, and what is wrong with the others."""
    try:
        return decode_spans(line)
    except LineError as error:
        return [], [str(error)]
