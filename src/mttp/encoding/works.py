"""What a helper can be asked for, and how it does it."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Final

from mttp.codec.profiles import Profile, full, packed
from mttp.encoding.helper import DONE, ODD
from mttp.encoding.parcels import OddBlocksError, unpack
from mttp.spans import SpanRecord
from mttp.wire.otlp_json import encode_records
from mttp.wire.otlp_proto import encode_span

__all__ = ["LINES", "MESSAGES", "WORKS"]

LINES: Final = 1
"""OTLP JSON lines, arrays packed."""
MESSAGES: Final = 2
"""The OTLP protobuf message of each span."""


def _lines(data: bytearray) -> tuple[int, bytes]:
    return _answer(data, packed, lambda records: b"".join(encode_records(records)))


def _messages(data: bytearray) -> tuple[int, bytes]:
    return _answer(data, full, lambda records: marshal.dumps(list(map(encode_span, records))))


def _answer(
    data: bytearray, profile: Profile, encode: Callable[[list[SpanRecord]], bytes]
) -> tuple[int, bytes]:
    try:
        return DONE, encode(unpack(data, profile))
    except OddBlocksError as odd:
        return ODD, marshal.dumps(odd.places)


WORKS: Mapping[int, Callable[[bytearray], tuple[int, bytes]]] = {LINES: _lines, MESSAGES: _messages}
"""The function for each: of a parcel, what became of it and the answer."""
