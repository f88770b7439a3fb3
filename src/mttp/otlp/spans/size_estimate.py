"""Roughly what spans take in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from mttp.codec.structures import Flattened

__all__ = ["SPAN_BYTES", "VALUE_BYTES", "weight"]

SPAN_BYTES, VALUE_BYTES = 400, 40
"""What a span, and each of its attributes, take in a file besides text and arrays: a rule of thumb."""
_NUMBERS = frozenset({float, int, bool, type(None)})


def weight(value: dict[str, Any] | list[Any]) -> int:
    """Roughly what these values take in a file: text and arrays exactly, the rest by rule of thumb."""
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
