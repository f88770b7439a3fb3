"""Writes to what is no file of its own: a pipe, a device, a socket, or a standard stream."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import threading
from pathlib import Path

from mttp.otlp.descriptors import Descriptor

__all__ = ["AppendStream", "is_stream"]

_TICK = 100
"""Milliseconds between two looks at whether the stream is to be closed."""
_PIECE = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512
"""Bytes that a stream takes without blocking if it takes any."""
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}
_NUMBERED = re.compile(r"/dev/(stdin|stdout|stderr)|/(?:dev/fd|proc/self/fd)/([0-9]+)")


def is_stream(path: Path) -> bool:
    """Whether a path is an open descriptor, such as /dev/stdout, or exists and is no regular file."""
    if _number(path) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _number(path: Path) -> int | None:
    """Return the descriptor that a path names; None if it names a file."""
    match = _NUMBERED.fullmatch(str(path))
    if match is None:
        return None
    return _STANDARD[match[1]] if match[1] else int(match[2])


class AppendStream:
    """
    A target that is only appended to: nothing is sought, truncated, locked or written again.

    Waits while its reader reads nothing, until `closing` is set.
    """

    def __init__(self, path: Path, closing: threading.Event) -> None:
        """Open the stream; raises OSError, for a pipe also if it has no reader."""
        self._closing = closing
        number = _number(path)
        self.is_shared = number is not None and not _is_pipe(number)
        """Whether it shares position and modes with the program's descriptor."""
        try:
            self.descriptor = self._reopened(path) if not self.is_shared else _copy(number)
        except PermissionError:  # the pipe of a container's log may belong to another user
            if number is None:
                raise
            self.is_shared, self.descriptor = True, _copy(number)

    @staticmethod
    def _reopened(path: Path) -> Descriptor:
        return Descriptor(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY))

    def write(self, data: bytes | bytearray) -> None:
        """
        Write all of `data`, however slowly it is read.

        Raises OSError if nothing was written, and CutStreamError if a part was.
        """
        rest = memoryview(data)
        try:
            while rest:
                self._wait()
                rest = rest[self._write(rest) :]
        except OSError as error:
            if len(rest) < len(data):
                raise CutStreamError(error.errno, error.strerror) from error
            raise

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self.descriptor.number, data[:_PIECE] if self.is_shared else data)
        except BlockingIOError:
            return 0

    def _wait(self) -> None:
        """Wait until something can be written; raises OSError without a reader or at the end."""
        poll = select.poll()
        poll.register(self.descriptor.number, select.POLLOUT)
        while True:
            if not self.descriptor.is_ours:
                raise OSError(errno.EBADF, "the program has closed its descriptor")
            events = poll.poll(_TICK)
            if events and events[0][1] & select.POLLERR:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if events:
                return
            if self._closing.is_set():
                raise TimeoutError(errno.ETIMEDOUT, "its reader did not read in time")


class CutStreamError(OSError):
    """A part of the data was written, and the rest can't be."""


def _is_pipe(number: int) -> bool:
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _copy(number: int) -> Descriptor:
    return Descriptor(os.dup(number))
