"""Estimates the size of spans in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from mttp.codec.structures import Flattened

__all__ = ["SPAN_BYTES", "VALUE_BYTES", "weight"]

SPAN_BYTES, VALUE_BYTES = 400, 40
"""Approximate bytes of a span, and of each attribute, besides text and arrays."""
_NUMBERS = frozenset({float, int, bool, type(None)})


def weight(value: dict[str, Any] | list[Any]) -> int:
    """Return the approximate bytes of values in a file."""
    size = VALUE_BYTES * len(value)
    for item in value.values() if isinstance(value, dict) else value:
        kind = type(item)
        if kind is str:
            size += len(item)
        elif kind is np.ndarray:
            size += item.nbytes
        elif kind not in _NUMBERS:
            size += _other(item)
    return size


def _other(item: Any) -> int:
    if isinstance(item, (str, bytes)):
        return len(item)
    if isinstance(item, (list, dict)):
        return weight(item)
    return item.nbytes if isinstance(item, (np.ndarray, Flattened)) else 0
