"""Spaces: described as plain data, and how their values are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from mttp.codec.plain import Faults, plain

__all__ = ["Reader", "describe"]

_MAX_LISTED = 64
"""Bounds are listed up to this many; a larger space states their range."""
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, np.generic)


class Reader:
    """
    How the values of one space are recorded.

    Values of Dict and Tuple spaces are flattened as Gymnasium does it, where the space allows that.
    All others are recorded as they are.
    Of what is beyond `max_bytes` there are only dtype and shape, which a space knows beforehand.
    """

    def __init__(self, space: Any, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        size = _flat_size(space)
        self._space = space if size else None
        flat = _unread(_flat_dtype(space), (size,)) if size else None
        self._too_large = flat if flat is not None and flat.nbytes > max_bytes else None

    @property
    def as_it_is(self) -> bool:
        """Whether values are recorded as they are."""
        return self._space is None

    def read(self, value: Any, faults: Faults) -> Any:
        """The value as it is recorded, which the caller may still change."""
        if self._space is None:
            return value
        if self._too_large is not None:
            return self._too_large
        try:
            return flatten(self._space, value)
        except Exception as error:
            faults.append(f"not_in_space: {type(error).__name__}: {error}")
            return value

    def keep(self, value: Any, faults: Faults) -> Any:
        """The value as it is recorded, safe from later changes."""
        found = self.read(value, faults)
        if isinstance(found, _IMMUTABLE):
            return found
        if type(found) is not np.ndarray or found.dtype.hasobject:
            return plain(found, faults)
        if found.nbytes > self._max_bytes:
            return _unread(found.dtype, found.shape)
        return found if self._space is not None else found.copy()


def _unread(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Stands for an array of which only dtype and shape count; it takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _flat_size(space: Any) -> int:
    """Elements that a value of this space is flattened to; 0 where it is recorded as it is."""
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return 0
    try:
        return int(flatdim(space))
    except (NotImplementedError, ValueError, TypeError):  # some member has no flat form
        return 0


def _flat_dtype(space: Any) -> np.dtype[Any]:
    """What those elements are."""
    members = getattr(space, "spaces", None)
    if members:
        return np.result_type(*map(_flat_dtype, members.values() if isinstance(members, dict) else members))
    return np.dtype(np.int32) if isinstance(space, spaces.Text) else np.dtype(space.dtype)


def describe(space: Any) -> dict[str, Any]:
    """The space as JSON can hold it, and how long its values are where they are flattened."""
    size = _flat_size(space)
    return {**_described(space), "flattened": size} if size else _described(space)


def _described(space: Any) -> dict[str, Any]:
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
    return {"spaces": [_described(member) for member in space.spaces]}


def _named_members(space: Any) -> dict[str, Any]:
    return {"spaces": {str(name): _described(member) for name, member in space.spaces.items()}}


def _sequence(space: Any) -> dict[str, Any]:
    return {"feature_space": _described(space.feature_space)}


def _graph(space: Any) -> dict[str, Any]:
    edges = None if space.edge_space is None else _described(space.edge_space)
    return {"node_space": _described(space.node_space), "edge_space": edges}


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
