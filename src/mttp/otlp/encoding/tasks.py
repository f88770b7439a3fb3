"""Tasks of the encoding process."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Final

from mttp.otlp.encoding import rows

__all__ = ["LINES", "MESSAGES", "answer"]

LINES: Final = 1
"""OTLP JSON lines, arrays packed."""
MESSAGES: Final = 2
"""The OTLP protobuf message of each span."""


def _lines(data: bytes) -> bytes:
    return rows.lines(rows.unpack(data))


def _messages(data: bytes) -> bytes:
    return marshal.dumps(rows.messages(rows.unpack(data)), rows.FORMAT)


_WORKS: Mapping[int, Callable[[bytes], bytes]] = {LINES: _lines, MESSAGES: _messages}


def answer(work: int, data: bytes) -> bytes:
    """Run a task on serialized rows."""
    return _WORKS[work](data)
