"""Reads from a socket until a deadline."""

from __future__ import annotations

import math
import socket
import time
from io import RawIOBase
from typing import Any

__all__ = ["Deadline"]


class Deadline(RawIOBase):
    """The bytes of a socket; reading after the deadline raises TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = math.inf
        """The deadline on the monotonic clock."""
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Wait for bytes and read them into `buffer`; raises TimeoutError after the deadline."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self._connection.settimeout(None if math.isinf(left) else left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Release the socket."""
        self._raw.close()
        super().close()
