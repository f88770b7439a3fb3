"""
Plain data kept as one `bytes` object and decoded on use: for chat messages a tenth of the work.

The garbage collector does not traverse bytes, and the caller may change the original value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mttp.codec.pictures import FEWEST
from mttp.codec.plain import Plain
from mttp.codec.sharing import CONTAINER_BYTES, ITEM_BYTES, MAX_COPIED_BYTES

__all__ = ["content", "sealed"]

_MAX_DEPTH = 16
_SCALARS = frozenset({float, bool, type(None)})
_INT64 = range(-(2**63), 2**63)
_PICTURE = b"data:"
"""What the data URL of a picture starts with."""
_NAMES = frozenset({str})

_encode_into = msgspec.msgpack.Encoder().encode_into
content = msgspec.msgpack.Decoder().decode
"""Return the value of a document."""


class _OtherDataError(ValueError):
    """A value is not plain data, or too much of it."""


def sealed(value: Plain) -> bytes | None:
    """Return a list or a mapping as bytes; None if it holds anything but plain data, or too much of it."""
    try:
        _check(value, _MAX_DEPTH)
        encoded = bytearray()
        _encode_into(value, encoded)  # the encoder's `encode` crashes the interpreter when memory runs out
    except (_OtherDataError, UnicodeEncodeError):  # a lone surrogate
        return None
    return None if _PICTURE in encoded and len(encoded) >= FEWEST else bytes(encoded)


def _check(value: Any, depth: int) -> int:
    """Return the size that a copy of plain data may have; raises `_OtherDataError` for other data."""
    size = CONTAINER_BYTES + ITEM_BYTES * len(value)
    items = value
    if type(value) is dict:
        if not _NAMES.issuperset(map(type, value)):
            raise _OtherDataError
        size, items = size + sum(map(len, value)), value.values()
    elif type(value) is not list:
        raise _OtherDataError
    if size > MAX_COPIED_BYTES:
        raise _OtherDataError
    for item in items:
        kind = type(item)
        if kind is str:
            size += len(item)
        elif kind is dict or kind is list:
            if depth == 0:
                raise _OtherDataError
            size += _check(item, depth - 1)
        elif kind not in _SCALARS and not (kind is int and item in _INT64):
            raise _OtherDataError
        if size > MAX_COPIED_BYTES:
            raise _OtherDataError
    return size
