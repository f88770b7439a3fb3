"""Converts lists of numbers of one type to arrays without checking each item."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

__all__ = ["Array", "as_numbers"]

Array: TypeAlias = "np.ndarray[Any, Any]"

_FEW = 24
"""Number of items below which writing them one by one is faster than an array."""
_MSGPACK_FLOAT = np.dtype([("marker", "u1"), ("value", ">f8")])

_msgpack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


def as_numbers(values: Sequence[Any]) -> Array | None:
    """Return floats, 64-bit integers or booleans as an array; None for other lists and short ones."""
    kind = type(values[0]) if len(values) >= _FEW else None
    if kind is bool:
        return np.array(values) if set(map(type, values)) == {bool} else None
    try:
        return _floats(values) if kind is float else _integers(values) if kind is int else None
    except (struct.error, TypeError, ValueError, OverflowError):  # another type is among them
        return None


def _floats(values: Sequence[Any]) -> Array | None:
    """Check all types at once: MessagePack writes only floats as a marker and 8 bytes."""
    encoded = _msgpack(values)
    start = 3 if len(values) < 1 << 16 else 5
    if len(encoded) != start + _MSGPACK_FLOAT.itemsize * len(values):
        return None
    array = np.frombuffer(encoded, _MSGPACK_FLOAT, offset=start)
    return array["value"] if (array["marker"] == 0xCB).all() else None


def _integers(values: Sequence[Any]) -> Array | None:
    """Packing accepts booleans; JSON writes them with letters."""
    packed = struct.pack(f"={len(values)}q", *values)
    return None if b"e" in _json(values) else np.frombuffer(packed, np.int64)
