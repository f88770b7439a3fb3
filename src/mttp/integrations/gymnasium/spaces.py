"""Describing spaces as plain data, and copying their values for recording."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from mttp.codec.plain import Faults, plain
from mttp.codec.structures import flatten

__all__ = ["describe", "keep"]

_MAX_LISTED = 64
"""The most bounds that are listed; a larger space is described by the lowest and highest bound."""
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, np.generic)


def keep(value: Any, faults: Faults, *, max_bytes: int) -> Any:
    """
    Return a copy of an observation or action for recording.

    Mappings and tuples that contain arrays become one array with its structure.
    An array of more than `max_bytes` is not copied: only its dtype and shape are kept.
    """
    if issubclass(type(value), _IMMUTABLE):  # asks no foreign object for its `__class__`
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy() if value.nbytes <= max_bytes else _placeholder(value.dtype, value.shape)
    flat = flatten(value, faults, max_bytes=max_bytes)
    return plain(value, faults) if flat is None else flat


def _placeholder(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array of this dtype and shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def describe(space: Any) -> dict[str, Any]:
    """Return a space as JSON data."""
    return {"type": type(space).__name__, **_facts(space)}


def _facts(space: Any) -> dict[str, Any]:
    for kind, facts in _KINDS:
        if isinstance(space, kind):
            return facts(space)
    return {"repr": repr(space)[:200]}


def _box(space: Any) -> dict[str, Any]:
    return {**_array(space), "low": _bounds(space.low, np.min), "high": _bounds(space.high, np.max)}


def _bounds(bounds: Any, widest: Any) -> Any:
    """Return one number if all bounds are equal, a list if they are few, else the widest bound."""
    if bounds.size == 0 or (bounds.size <= _MAX_LISTED and (bounds != bounds.flat[0]).any()):
        return bounds.tolist()
    return widest(bounds).item()


def _array(space: Any) -> dict[str, Any]:
    return {"shape": list(space.shape), "dtype": str(space.dtype)}


def _discrete(space: Any) -> dict[str, Any]:
    return {"n": int(space.n), "start": int(space.start)}


def _multi_discrete(space: Any) -> dict[str, Any]:
    return {**_array(space), "nvec": space.nvec.tolist(), "start": space.start.tolist()}


def _text(space: Any) -> dict[str, Any]:
    return {"min_length": space.min_length, "max_length": space.max_length}


def _members(space: Any) -> dict[str, Any]:
    return {"spaces": [describe(member) for member in space.spaces]}


def _named_members(space: Any) -> dict[str, Any]:
    return {"spaces": {str(name): describe(member) for name, member in space.spaces.items()}}


def _sequence(space: Any) -> dict[str, Any]:
    return {"feature_space": describe(space.feature_space)}


def _graph(space: Any) -> dict[str, Any]:
    edges = None if space.edge_space is None else describe(space.edge_space)
    return {"node_space": describe(space.node_space), "edge_space": edges}


_KINDS = (
    (spaces.Box, _box),
    (spaces.Discrete, _discrete),
    (spaces.MultiDiscrete, _multi_discrete),
    (spaces.MultiBinary, _array),
    (spaces.Text, _text),
    (spaces.Dict, _named_members),
    ((spaces.Tuple, spaces.OneOf), _members),
    (spaces.Sequence, _sequence),
    (spaces.Graph, _graph),
)
