"""Converts lists of numbers of one type to arrays, without a check of each item in Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

__all__ = ["Array", "as_numbers"]

Array: TypeAlias = "np.ndarray[Any, Any]"

_FEW = 24
"""Minimum length; shorter lists are encoded faster item by item."""
_MSGPACK_FLOAT = np.dtype([("marker", "u1"), ("value", ">f8")])

_msgpack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


def as_numbers(values: Sequence[Any]) -> Array | None:
    """Return a long list of floats, 64-bit integers or booleans as an array; None for other lists."""
    kind = type(values[0]) if len(values) >= _FEW else None
    if kind is bool:
        return np.array(values) if set(map(type, values)) == {bool} else None
    try:
        return _floats(values) if kind is float else _integers(values) if kind is int else None
    except (struct.error, TypeError, ValueError, OverflowError):  # items of another type
        return None


def _floats(values: Sequence[Any]) -> Array | None:
    """Convert floats by MessagePack, which encodes each float, and no other type, as a marker and 8 bytes."""
    encoded = _msgpack(values)
    start = 3 if len(values) < 1 << 16 else 5
    if len(encoded) != start + _MSGPACK_FLOAT.itemsize * len(values):
        return None
    found = np.frombuffer(encoded, _MSGPACK_FLOAT, offset=start)
    return found["value"] if (found["marker"] == 0xCB).all() else None


def _integers(values: Sequence[Any]) -> Array | None:
    """Convert integers; `struct` accepts booleans too, but their JSON contains a letter."""
    packed = struct.pack(f"={len(values)}q", *values)
    return None if b"e" in _json(values) else np.frombuffer(packed, np.int64)
