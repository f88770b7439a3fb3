"""Forms of attributes for transports: arrays as numpy arrays, as lists, or as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from mttp.codec import blocks, content, tokens
from mttp.codec.plain import Plain

__all__ = ["DAMAGE", "Profile", "arrays", "full", "packed", "unpacked"]

Profile: TypeAlias = Callable[[Mapping[str, Plain]], dict[str, Plain]]
"""Converts a span's recorded attributes to the attributes for a transport."""


DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Errors of arrays and layouts that were damaged after they were written."""


def full(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a copy, with arrays as numpy arrays."""
    return dict(attributes)


def arrays(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a copy, with each array as a list of its elements."""
    return _listed(dict(attributes))


def packed(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a copy with arrays as bytes, which are smaller and parsed on use."""
    projected = dict(attributes)
    if np.ndarray not in set(map(type, projected.values())):
        return projected
    content.pack(projected)
    tokens.pack(projected)
    if blocks.is_block(projected):
        blocks.pack(projected)
    return _listed(projected)


def _listed(attributes: dict[str, Plain]) -> dict[str, Plain]:
    """Replace arrays with lists of their elements, in place."""
    for key in [key for key, value in attributes.items() if isinstance(value, np.ndarray)]:
        attributes[key] = attributes[key].ravel().tolist()
    return attributes


def unpacked(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """
    Return attributes from `packed` or `arrays` with numpy arrays, as they were recorded.

    Arrays of a damaged recording that can't be unpacked stay as they are.
    """
    values = dict(attributes)
    for unpack in (content.unpack, tokens.unpack, *([blocks.unpack] if blocks.is_block(values) else ())):
        tried = dict(values)
        try:
            unpack(tried)
        except DAMAGE:
            continue
        values = tried
    return values
