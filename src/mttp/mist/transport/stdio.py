"""Messages on standard output, line by line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, ClassVar

from mttp.errors import SendError, TransportError
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Lines
from mttp.transports.options import path_of, take

__all__ = ["StdioOutlet", "open"]


class StdioOutlet:
    """Writes whole lines; nothing else should be printed meanwhile."""

    is_stream: ClassVar[bool] = True
    is_remote: ClassVar[bool] = False
    address: ClassVar[str | None] = None
    """A child process's output may belong to its parent alone."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines = Lines(self)
        self._closed = False
        self.after_fork()

    def send(self, messages: Sequence[Message]) -> None:
        """Write them, and have them written on."""
        data = self._lines(messages)
        with self._lock:
            if self._closed:
                raise SendError(f"{self} is closed", cause="closed")
            self._stream.write(data)
            self._stream.flush()

    def close(self) -> None:
        """Write nothing more; the stream stays open for others."""
        self._closed = True

    def after_fork(self) -> None:
        """In a forked child: the stream is shared with the parent."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "mttp+stdio://"


def open(address: str, options: Mapping[str, object]) -> StdioOutlet:
    """Standard output as it is now."""
    take(options, StdioOutlet)
    if path := path_of(address):
        raise TransportError(f"standard output has no path, not even {path!r}; write mttp+stdio://")
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise TransportError("standard output was replaced by something that takes no bytes")
    return StdioOutlet(stream)
