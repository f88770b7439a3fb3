"""Writes messages to standard output, line by line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, ClassVar

from mttp.errors import SendError, TransportError
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Lines
from mttp.transports.options import path_of, take


class StdioOutlet:
    """Writes whole lines to a stream; other output on the stream would mix with them."""

    is_stream: ClassVar[bool] = True
    is_remote: ClassVar[bool] = False
    address: ClassVar[str | None] = None
    """None: the output of a child process may be read by its parent."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines = Lines(self)
        self._closed = False
        self.after_fork()

    def send(self, messages: Sequence[Message]) -> None:
        """Write the messages and flush the stream."""
        data = self._lines(messages)
        with self._lock:
            if self._closed:
                raise SendError(f"{self} is closed", cause="closed")
            self._stream.write(data)
            self._stream.flush()

    def close(self) -> None:
        """End sending; the stream stays open."""
        self._closed = True

    def after_fork(self) -> None:
        """In a forked child: replace the lock; the stream is shared with the parent."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "mttp+stdio://"


def open(address: str, options: Mapping[str, object]) -> StdioOutlet:
    """Open an outlet to the current standard output."""
    take(options, StdioOutlet)
    if path := path_of(address):
        raise TransportError(f"standard output has no path, but {path!r} was given; write mttp+stdio://")
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise TransportError("standard output was replaced by a stream without a binary buffer")
    return StdioOutlet(stream)
