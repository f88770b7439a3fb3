"""What a helper can be asked for, and how it does it."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Final

from mttp.codec.profiles import full, packed
from mttp.encoding.parcels import unpack
from mttp.wire.otlp_json import encode_records
from mttp.wire.otlp_proto import encode_span

__all__ = ["LINES", "MESSAGES", "WORKS"]

LINES: Final = 1
"""OTLP JSON lines, arrays packed."""
MESSAGES: Final = 2
"""The OTLP protobuf message of each span."""


def _lines(data: bytearray) -> bytes:
    return b"".join(encode_records(unpack(data, packed)))


def _messages(data: bytearray) -> bytes:
    return marshal.dumps(list(map(encode_span, unpack(data, full))))


WORKS: Mapping[int, Callable[[bytearray], bytes]] = {LINES: _lines, MESSAGES: _messages}
"""The function for each: of a parcel the answer."""
