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

_MAX_DEPTH = 17
_SCALARS = frozenset({float, bool, type(None)})
_INT64 = range(-(2**63), 2**63)
_PICTURE = "data:"
"""What the data URL of a picture starts with."""

_encode_into = msgspec.msgpack.Encoder().encode_into
content = msgspec.msgpack.Decoder().decode
"""Return the value of a document."""


class _OtherDataError(ValueError):
    """A value is not plain data, or too much of it."""


def sealed(value: Plain) -> bytes | None:
    """Return a list or a mapping as bytes; None if it holds anything but plain data, or too much of it."""
    try:
        _check(value)
        encoded = bytearray()
        _encode_into(value, encoded)  # the encoder's `encode` crashes the interpreter when memory runs out
    except (_OtherDataError, UnicodeEncodeError):  # a lone surrogate
        return None
    return bytes(encoded)


def _check(value: Any) -> None:
    """Raise `_OtherDataError` for a container of other data, one nested too deeply, or too large a copy."""
    size, level = 0, [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            size += CONTAINER_BYTES + ITEM_BYTES * len(container)
            items = container
            if type(container) is dict:
                items = container.values()
                for name in container:
                    if type(name) is not str:
                        raise _OtherDataError
                    size += len(name)
            elif type(container) is not list:
                raise _OtherDataError
            for item in items:
                kind = type(item)
                if kind is str:
                    size += len(item)
                    if len(item) >= FEWEST and item.startswith(_PICTURE):
                        raise _OtherDataError
                elif kind is dict or kind is list:
                    below.append(item)
                elif kind not in _SCALARS and not (kind is int and item in _INT64):
                    raise _OtherDataError
            if size > MAX_COPIED_BYTES:
                raise _OtherDataError
        if not below:
            return
        level = below
    raise _OtherDataError
