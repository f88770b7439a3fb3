"""Writes to what is no file of its own: a pipe, a device, a socket, or a standard stream."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import threading
from math import inf
from pathlib import Path

from mttp.model import clock
from mttp.otlp.descriptors import Descriptor

__all__ = ["AppendStream", "CutStreamError", "is_stream"]

_TICK = 100
"""Milliseconds between two looks at whether the stream is to be closed."""
_MAIN_SECONDS = 5.0
"""Seconds for which the program's main thread, as it ends, waits for a reader that reads nothing."""
_PIECE = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512
"""Bytes that a stream takes without blocking if it takes any."""
_MOST_LINKS = 8
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
    """Return the descriptor that a path names, also by links; None if it names a file."""
    for _ in range(_MOST_LINKS):
        match = _NUMBERED.fullmatch(str(path))
        if match is not None:
            return _STANDARD[match[1]] if match[1] else int(match[2])
        try:
            path = path.parent / path.readlink()
        except OSError:
            break
    return None


class AppendStream:
    """
    A target that is only appended to: nothing is sought, truncated, locked or written again.

    Waits while its reader reads nothing, until `closing` is set.
    """

    def __init__(self, path: Path, closing: threading.Event) -> None:
        """Open the stream; raises OSError, for a pipe also if it has no reader."""
        self._closing = closing
        self._is_cut = False
        """Whether the last data ends early."""
        number = _number(path)
        self.is_named = number is None
        """Whether its path is its own, and names another stream once that is replaced."""
        self._is_shared = False
        """Whether it has position and modes in common with a descriptor of the program."""
        if number is None:
            self.descriptor = _opened(path)
            return
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                self.descriptor = _opened(path)
                return
        except PermissionError:  # the pipe of a container's log may belong to another user
            pass
        self._is_shared, self.descriptor = True, Descriptor(os.dup(number))

    def write(self, data: bytes | bytearray) -> None:
        """
        Write all of `data`, however slowly it is read.

        Raises OSError if nothing was written, and CutStreamError if a part was.
        """
        rest = memoryview(b"\n" + data if self._is_cut else data)
        size = len(rest)
        try:
            while rest:
                self._wait()
                rest = rest[self._write(rest) :]
                self._is_cut = bool(rest)
        except OSError as error:
            if len(rest) < size:
                raise CutStreamError(error.errno, f"within a line: {error.strerror}") from error
            raise

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self.descriptor.number, data[:_PIECE] if self._is_shared else data)
        except BlockingIOError:
            return 0

    def _wait(self) -> None:
        """Wait until something can be written; raises OSError without a reader or at the end."""
        poll = select.poll()
        poll.register(self.descriptor.number, select.POLLOUT)
        is_main = threading.current_thread() is threading.main_thread()
        until = clock.seconds() + _MAIN_SECONDS if is_main else inf
        while True:
            if not self.descriptor.is_ours:
                raise OSError(errno.EBADF, "the program has closed its descriptor")
            events = poll.poll(_TICK)
            if events and events[0][1] & select.POLLERR:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if events:
                return
            if self._closing.is_set() or clock.seconds() > until:
                raise TimeoutError(errno.ETIMEDOUT, "its reader did not read in time")


class CutStreamError(OSError):
    """A part of the data was written, and the rest can't be."""


def _opened(path: Path) -> Descriptor:
    mode = path.stat().st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a socket or a disk, which can't be appended to")
    return Descriptor(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
