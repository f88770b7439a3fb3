"""
Plain data kept as one `bytes` object and decoded on use: for chat messages a tenth of the work.

The garbage collector does not traverse bytes, and the caller may change the original value.
"""

from __future__ import annotations

import marshal
from typing import Any

from mttp.codec.pictures import FEWEST
from mttp.codec.plain import Plain
from mttp.codec.sharing import CONTAINER_BYTES, ITEM_BYTES, MAX_COPIED_BYTES

__all__ = ["content", "sealed"]

_FORMAT = 2
_MAX_DEPTH = 16
_SCALARS = frozenset({float, bool, type(None)})
_INT64 = range(-(2**63), 2**63)


def sealed(value: Any) -> bytes | None:
    """Return a list or a mapping as bytes; None if it holds anything but plain data, or too much of it."""
    left = [MAX_COPIED_BYTES]
    return marshal.dumps(value, _FORMAT) if _is_plain(value, _MAX_DEPTH, left) and left[0] >= 0 else None


def content(document: bytes) -> Plain:
    """Return the value of a document."""
    return marshal.loads(document)


def _is_plain(value: Any, depth: int, left: list[int]) -> bool:
    """Return whether the value is recorded unchanged, without faults; `left` is the size that it may have."""
    kind = type(value)
    if kind is str:
        size = len(value)
        left[0] -= size
        if size >= FEWEST and value.startswith("data:"):  # perhaps a picture
            return False
        return value.isascii() or _is_text(value)
    if kind in _SCALARS:
        return True
    if kind is int:
        return value in _INT64
    if depth == 0:
        return False
    if kind is list:
        left[0] -= CONTAINER_BYTES + ITEM_BYTES * len(value)
        return left[0] >= 0 and (
            _SCALARS.issuperset(map(type, value)) or all(_is_plain(item, depth - 1, left) for item in value)
        )
    if kind is not dict:
        return False
    left[0] -= CONTAINER_BYTES + ITEM_BYTES * len(value)
    return left[0] >= 0 and all(
        type(key) is str and _is_plain(key, depth, left) and _is_plain(item, depth - 1, left)
        for key, item in value.items()
    )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
