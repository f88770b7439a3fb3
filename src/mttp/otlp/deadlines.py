"""Reads from a socket with a deadline for all bytes together."""

from __future__ import annotations

import math
import socket
from io import RawIOBase
from typing import Any

from mttp.model import clock

__all__ = ["Deadline"]


class Deadline(RawIOBase):
    """A raw stream over a socket; reading raises TimeoutError after the deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = math.inf
        """The deadline on the monotonic clock."""
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Wait for bytes, and read the available ones."""
        left = self.until - clock.seconds()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self._connection.settimeout(None if math.isinf(left) else left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Drop the reference to the socket."""
        self._raw.close()
        super().close()
