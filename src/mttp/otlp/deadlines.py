"""Reading from a socket until a time, however slowly its bytes come."""

from __future__ import annotations

import math
import socket
import time
from io import RawIOBase
from typing import Any

__all__ = ["Deadline"]


class Deadline(RawIOBase):
    """What a socket sends; after the time is up reading raises TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = math.inf
        """When the time is up, on the monotonic clock."""
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read what there is, once there is something."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        self._connection.settimeout(None if math.isinf(left) else left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()
