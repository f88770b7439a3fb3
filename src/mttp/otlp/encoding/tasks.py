"""Tasks of the encoding process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mttp.otlp import frames

__all__ = ["LINES", "MESSAGES", "answer"]

LINES: Final = 1
"""OTLP JSON lines, arrays packed."""
MESSAGES: Final = 2
"""The OTLP protobuf message of each span."""


def _messages(data: bytes) -> bytes:
    return msgspec.msgpack.encode(frames.messages(*frames.split(data)))


_WORKS: Mapping[int, Callable[[bytes], bytes]] = {
    LINES: lambda data: frames.lines(*frames.split(data)),
    MESSAGES: _messages,
}


def answer(work: int, data: bytes) -> bytes:
    """Run a task on joined frames."""
    return _WORKS[work](data)
