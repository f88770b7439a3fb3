"""What a transport can hold: the full record, its arrays as lists, or its arrays packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from mttp.codec import blocks, content, tokens
from mttp.codec.plain import Plain

__all__ = ["Profile", "arrays", "full", "packed", "unpacked"]

Profile: TypeAlias = Callable[[Mapping[str, Plain]], dict[str, Plain]]
"""A span's attributes as recorded to its attributes as delivered."""


def full(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Everything as recorded, arrays as numpy arrays."""
    return dict(attributes)


def arrays(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Everything, each array as a list of its elements."""
    return _listed(dict(attributes))


def packed(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """Everything, arrays as bytes: a fraction of the size, parsed on use."""
    projected = dict(attributes)
    if np.ndarray not in set(map(type, projected.values())):
        return projected
    content.pack(projected)
    tokens.pack(projected)
    if blocks.is_block(projected):
        blocks.pack(projected)
    return _listed(projected)


def _listed(attributes: dict[str, Plain]) -> dict[str, Plain]:
    """Replace arrays by lists of their elements, in place."""
    for key in [key for key, value in attributes.items() if isinstance(value, np.ndarray)]:
        attributes[key] = attributes[key].ravel().tolist()
    return attributes


def unpacked(attributes: Mapping[str, Plain]) -> dict[str, Plain]:
    """What `packed` or `arrays` delivered as it was recorded: arrays are numpy arrays again."""
    projected = dict(attributes)
    content.unpack(projected)
    tokens.unpack(projected)
    if blocks.is_block(projected):
        blocks.unpack(projected)
    return projected
