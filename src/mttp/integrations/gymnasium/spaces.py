"""Spaces: described as plain data, and how their values are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from mttp.codec.plain import Faults, plain
from mttp.codec.structures import flatten

__all__ = ["describe", "keep"]

_MAX_LISTED = 64
"""Bounds are listed up to this many; a larger space states their range."""
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, np.generic)


def keep(value: Any, faults: Faults, *, max_bytes: int) -> Any:
    """
    An observation or action as it is recorded, safe from later changes.

    Mappings and tuples with arrays in them become one array, which knows its structure.
    What is beyond `max_bytes` is not read: only its dtype and shape count.
    """
    if isinstance(value, _IMMUTABLE):
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy() if value.nbytes <= max_bytes else _unread(value.dtype, value.shape)
    flat = flatten(value, faults, max_bytes=max_bytes)
    return plain(value, faults) if flat is None else flat


def _unread(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Stands for an array of which only dtype and shape count; it takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def describe(space: Any) -> dict[str, Any]:
    """The space as JSON can hold it."""
    return {"type": type(space).__name__, **_facts(space)}


def _facts(space: Any) -> dict[str, Any]:
    for kind, facts in _KINDS:
        if isinstance(space, kind):
            return facts(space)
    return {"repr": repr(space)[:200]}


def _box(space: Any) -> dict[str, Any]:
    return {**_array(space), "low": _bounds(space.low, np.min), "high": _bounds(space.high, np.max)}


def _bounds(bounds: Any, widest: Any) -> Any:
    """One number where all are equal, a list where they are few, else the widest of them."""
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
