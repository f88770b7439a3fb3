"""How a process and its worker talk: each message after its length."""

from __future__ import annotations

import struct
from typing import IO

__all__ = ["read_frame", "write_frame"]

_LENGTH = struct.Struct(">Q")


def write_frame(stream: IO[bytes], message: bytes) -> None:
    """Write one message; raises OSError where nobody listens any more."""
    stream.write(_LENGTH.pack(len(message)) + message)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next message; None where there will be none, or it was cut off."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None
