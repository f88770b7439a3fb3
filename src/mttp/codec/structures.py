"""
Mappings, tuples and lists with arrays, as one flat array and a structure.

The structure is JSON: an array is `["float32", [3]]`, a number "int", "float" or "bool", a text
`{"text": "..."}`, None is null; containers are `{"dict": {...}}`, `{"tuple": [...]}` and `{"list": [...]}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from mttp.codec.plain import Faults, as_array, text
from mttp.model.nesting import MAX_DEPTH, is_deep

__all__ = ["Flattened", "flatten", "rebuild"]

_INT64 = range(-(2**63), 2**63)
_MAX_STRUCTURE_DEPTH = 2 * MAX_DEPTH + 2
"""The maximum depth of a structure, which has two levels per container, and two for an array."""
_NUMBERS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
_NAMES = {bool: "bool", int: "int", float: "float"}
_SEQUENCES = {"tuple": tuple, "list": list}

_Part: TypeAlias = tuple[Any, ...]
"""A member's kind and description, hashable so that structures can be cached."""


@dataclass(frozen=True, slots=True, eq=False)
class Flattened:
    """A copy of a value as one array and a structure."""

    numbers: np.ndarray[Any, Any]
    """All numbers of the value in order, shape [count]."""
    structure: str
    """The structure, as JSON."""

    @property
    def nbytes(self) -> int:
        """The size of the numbers in bytes; zero if they were not copied."""
        return self.numbers.nbytes if self.numbers.flags.owndata else 0


class _UnsupportedError(Exception):
    """A member that a flat array can't hold; the message describes it."""


def flatten(value: object, faults: Faults, *, max_bytes: int | None = None) -> Flattened | None:
    """
    Return a mapping, tuple or list as a flat array and its structure; None for other values.

    None also for lists and mappings without arrays, and for tuples with text, which are plain data.
    None with a fault for a value with arrays and a member that a flat array can't hold.
    Beyond `max_bytes` the numbers are not copied.
    """
    if not isinstance(value, (Mapping, tuple, list)):
        return None
    leaves: list[Any] = []
    try:
        part = _part(value, leaves, 0)
        if not _is_flat(part, leaves):
            return None
        dtype = np.result_type(*[leaf.dtype for leaf in leaves]).newbyteorder("=")
        count = sum(leaf.size for leaf in leaves)
        if max_bytes is not None and count * dtype.itemsize > max_bytes:
            return Flattened(np.broadcast_to(np.zeros((), dtype), (count,)), _encoded(part))
        numbers = np.concatenate([leaf.ravel() for leaf in leaves], dtype=dtype)
        if dtype.kind == "f":
            _check_exact(leaves, dtype)
    except _UnsupportedError as error:
        if any(leaf.ndim for leaf in leaves):
            faults.append(f"structure_not_kept: {error}; arrays are kept as lists")
        return None
    return Flattened(numbers, _encoded(part))


def _part(value: Any, leaves: list[Any], depth: int) -> _Part:
    """Return the description of a member, and append its numbers to `leaves` as arrays."""
    kind = type(value)
    if kind is np.ndarray and value.ndim:
        return _array_part(value, leaves)
    if kind in _NUMBERS:
        return _number_part(value, kind, leaves)
    if value is None:
        return (None,)
    if isinstance(value, str):
        return ("text", text(value, []))
    if depth >= MAX_DEPTH:
        raise _UnsupportedError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        names = tuple([text(str(name), []) for name in value])
        if len(set(names)) < len(names):
            raise _UnsupportedError("two of its names are the same as text")
        return ("dict", names, tuple([_part(item, leaves, depth + 1) for item in value.values()]))
    if isinstance(value, (tuple, list)):
        container = "tuple" if isinstance(value, tuple) else "list"
        return (container, tuple([_part(item, leaves, depth + 1) for item in value]))
    return _foreign_part(value, leaves)


def _foreign_part(value: Any, leaves: list[Any]) -> _Part:
    """Describe a number or an array of another library; a scalar becomes a Python number."""
    try:
        array = as_array(value)
    except Exception as error:  # objects of other libraries may raise any exception
        raise _UnsupportedError(f"a {type(value).__name__} raised {type(error).__name__}") from error
    if array is None:
        raise _UnsupportedError(f"it has a {type(value).__name__}")
    if array.ndim:
        return _array_part(array, leaves)
    found = array.item()
    if type(found) not in _NUMBERS:
        raise _UnsupportedError(f"it has a number of type {array.dtype}")
    return _number_part(found, type(found), leaves)


def _array_part(array: Any, leaves: list[Any]) -> _Part:
    leaves.append(array)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise _UnsupportedError(f"it has an array of type {array.dtype}")
    return ("array", array.dtype.name, array.shape)


def _number_part(number: Any, kind: type, leaves: list[Any]) -> _Part:
    if kind is int and number not in _INT64:
        raise _UnsupportedError(
            f"it has the integer {number:.6g}" if abs(number) < 10**300 else "it has a huge integer"
        )
    leaves.append(np.array(number, _NUMBERS[kind]))
    return (_NAMES[kind],)


def _is_flat(part: _Part, leaves: list[Any]) -> bool:
    """Return whether plain data would lose information: dtypes of arrays, or that it is a tuple."""
    if not leaves:
        return False
    if any(leaf.ndim for leaf in leaves):
        return True
    kinds = set(_kinds(part))
    return "tuple" in kinds and not kinds & {"text", None}


def _kinds(part: _Part) -> Iterator[str | None]:
    yield part[0]
    if part[0] in ("dict", "tuple", "list"):
        for member in part[-1]:
            yield from _kinds(member)


def _check_exact(leaves: list[Any], dtype: Any) -> None:
    """Raise if 64-bit integers next to floats are not exact as floats."""
    for leaf in leaves:
        if leaf.dtype.kind in "iu" and leaf.dtype.itemsize == 8:
            with np.errstate(invalid="ignore"):
                is_exact = (leaf.astype(dtype).astype(leaf.dtype) == leaf).all() and (
                    np.abs(leaf.astype(dtype)) < 2.0**63
                ).all()
            if not is_exact:
                raise _UnsupportedError("it has an integer beyond 2**53 next to floats")


@lru_cache(maxsize=256)
def _encoded(part: _Part) -> str:
    return json.dumps(_document(part), ensure_ascii=False, separators=(",", ":"))


def _document(part: _Part) -> Any:
    kind = part[0]
    if kind == "array":
        return [part[1], list(part[2])]
    if kind == "text":
        return {"text": part[1]}
    if kind == "dict":
        return {"dict": dict(zip(part[1], map(_document, part[2]), strict=True))}
    return {kind: list(map(_document, part[1]))} if kind in _SEQUENCES else kind


def rebuild(numbers: np.ndarray[Any, Any], structure: str) -> Any:
    """Return the value that `flatten` took; the flat array itself if the structure does not match it."""
    try:
        position = [0]
        found = _rebuilt(_read(structure), numbers.ravel(), position)
        return found if position[0] == numbers.size else numbers
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return numbers


@lru_cache(maxsize=256)
def _read(structure: str) -> Any:
    document = json.loads(structure)
    if is_deep(document, _MAX_STRUCTURE_DEPTH):
        raise ValueError("it is nested too deeply")
    return document


def _rebuilt(document: Any, numbers: Any, position: list[int]) -> Any:
    if document is None:
        return None
    if isinstance(document, str):
        number = _taken(1, numbers, position)[0].item()
        return {"int": int, "float": float, "bool": bool}[document](number)
    if isinstance(document, list):
        dtype, shape = np.dtype(document[0]), tuple(document[1])
        if dtype.kind not in "biuf":
            raise ValueError(f"not a numeric dtype: {dtype}")
        return _taken(math.prod(shape), numbers, position).astype(dtype).reshape(shape)
    ((kind, members),) = document.items()
    if kind == "text":
        return str(members)
    if kind == "dict":
        return {name: _rebuilt(member, numbers, position) for name, member in members.items()}
    return _SEQUENCES[kind](_rebuilt(member, numbers, position) for member in members)


def _taken(count: int, numbers: Any, position: list[int]) -> Any:
    """Return the next `count` numbers, and advance the position."""
    start = position[0]
    position[0] = end = start + count
    if not 0 <= start <= end <= numbers.size:
        raise ValueError("the structure has more numbers than the array")
    return numbers[start:end]
