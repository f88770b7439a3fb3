"""
Mappings, tuples and lists with arrays, as one flat array and a structure.

The structure is JSON: an array is `["float32", [3]]`, a number "int", "float" or "bool", a text
`{"text": "..."}`, None is null; containers are `{"dict": {...}}`, `{"tuple": [...]}` and `{"list": [...]}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from mttp.codec.plain import Faults, as_array, is_inflated, text
from mttp.codec.sharing import CYCLE, ITEM_BYTES, SHORT, Sharing
from mttp.model.interrupts import raise_interrupt
from mttp.model.nesting import MAX_DEPTH, is_deep
from mttp.model.reprs import type_name
from mttp.model.values import has_masked

__all__ = ["Flattened", "flatten", "rebuild"]

_INT64 = range(-(2**63), 2**63)
_MAX_STRUCTURE_DEPTH = 2 * MAX_DEPTH + 2
"""The maximum depth of a structure, which has two levels per container, and two for an array."""
_NUMBERS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
_NAMES = {bool: "bool", int: "int", float: "float"}
_SEQUENCES = {"tuple": tuple, "list": list}
_CONTAINERS = frozenset({dict, tuple, list})
_FLAT = frozenset({np.ndarray, str, int, float, bool, type(None)})
"""Types of values without members: the most frequent ones."""
_MAX_BYTES = 1 << 28
"""The maximum size of arrays that are shared with others, in bytes."""

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
    kind = type(value)
    try:
        if kind in _FLAT or not issubclass(kind, (Mapping, tuple, list)):
            return None
        members = _Members()
        part = members.part(value, 0)
        if not members.has_arrays and not (members.numbers and _is_tuple(part)):
            return None
        leaves = [
            number if type(number) is np.ndarray else np.array(number, _NUMBERS[type(number)])
            for number in members.numbers
        ]
        dtype = np.result_type(*[leaf.dtype for leaf in leaves]).newbyteorder("=")
        count = sum(leaf.size for leaf in leaves)
        if max_bytes is not None and count * dtype.itemsize > max_bytes:
            flat = Flattened(np.broadcast_to(np.zeros((), dtype), (count,)), _encoded(part))
        else:
            flat = Flattened(_joined(leaves, count, dtype), _encoded(part))
    except _UnsupportedError as error:
        if members.has_arrays:
            faults.append(f"structure_not_kept: {error}; arrays are kept as lists")
        return None
    faults += members.faults
    return flat


def _joined(leaves: list[Any], count: int, dtype: Any) -> Any:
    """Return all numbers as one array."""
    if count * dtype.itemsize > _MAX_BYTES:
        sizes = {id(leaf): leaf.size for leaf in leaves}
        if (count - sum(sizes.values())) * dtype.itemsize > _MAX_BYTES:
            raise _UnsupportedError(f"it has more than {_MAX_BYTES:,} bytes of shared arrays")
    numbers = np.concatenate([leaf.ravel() for leaf in leaves], dtype=dtype)
    if dtype.kind == "f":
        _check_exact(leaves, dtype)
    return numbers


class _Members:
    """The members of a value: their numbers and arrays in order, and faults of their texts."""

    __slots__ = ("_sharing", "faults", "has_arrays", "numbers")

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.has_arrays = False
        self.faults: Faults = []
        self._sharing = Sharing()

    def part(self, value: Any, depth: int) -> _Part:
        """Return the description of a member, and append its numbers."""
        kind = type(value)
        if kind is np.ndarray and value.ndim:
            return self._array(value)
        if kind in _NUMBERS:
            return self._number(value)
        if value is None:
            return (None,)
        if kind is str:
            return self._text(value)
        if kind in _CONTAINERS:
            return self._container(value, depth)
        try:
            return self._foreign(value, depth)
        except _UnsupportedError:
            raise
        except Exception as error:  # objects of other libraries may raise any exception
            raise_interrupt(error)
            raise _UnsupportedError(f"a {type_name(value)} raised {type_name(error)}") from error

    def _container(self, value: Any, depth: int) -> _Part:
        if depth >= MAX_DEPTH:
            raise _UnsupportedError(f"it is nested more than {MAX_DEPTH} deep")
        is_exact = type(value) in _CONTAINERS
        if marker := self._sharing.enter(value, ITEM_BYTES * len(value) if is_exact else 0):
            raise _UnsupportedError("it holds itself" if marker == CYCLE else _SHARED)
        part: _Part
        if isinstance(value, Mapping):
            items = list(value.items() if is_exact else self._taken(value.items()))
            names = tuple([text(name, self.faults) for name, _ in items])
            if len(set(names)) < len(names):
                raise _UnsupportedError("two of its names are the same as text")
            part = ("dict", names, tuple([self.part(item, depth + 1) for _, item in items]))
        else:
            container = "tuple" if isinstance(value, tuple) else "list"
            members = value if is_exact else self._taken(value)
            part = (container, tuple([self.part(item, depth + 1) for item in members]))
        self._sharing.leave(value)
        return part

    def _taken(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if not self._sharing.take(ITEM_BYTES):
                raise _UnsupportedError(_SHARED)
            yield item

    def _foreign(self, value: Any, depth: int) -> _Part:
        """Describe a member of another library; a scalar becomes a Python number."""
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, (Mapping, tuple, list)):
            return self._container(value, depth)
        if has_masked(value):
            raise _UnsupportedError("it has masked elements")
        if isinstance(value, (int, float)):
            return self._number(int.__int__(value) if isinstance(value, int) else float.__float__(value))
        array = as_array(value)
        if array is None:
            raise _UnsupportedError(f"it has a {type_name(value)}")
        if array.ndim:
            return self._array(array)
        number = array.item()
        if type(number) not in _NUMBERS:
            raise _UnsupportedError(f"it has a number of type {array.dtype}")
        return self._number(number)

    def _text(self, value: str) -> _Part:
        if len(value) > SHORT and not self._sharing.admits(value, len(value)):
            raise _UnsupportedError(_SHARED)
        return ("text", text(value, self.faults))

    def _array(self, array: Any) -> _Part:
        self.has_arrays = True
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise _UnsupportedError(f"it has an array of type {array.dtype}")
        if is_inflated(array):
            raise _UnsupportedError(_SHARED)
        self.numbers.append(array)
        return ("array", array.dtype.name, array.shape)

    def _number(self, number: Any) -> _Part:
        if type(number) is int and number not in _INT64:
            raise _UnsupportedError(
                f"it has the integer {number:.6g}" if abs(number) < 10**300 else "it has a huge integer"
            )
        self.numbers.append(number)
        return (_NAMES[type(number)],)


_SHARED = "it holds too much more than once"


def _is_tuple(part: _Part) -> bool:
    """Return whether plain data would lose that it is a tuple of numbers."""
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
        value = _rebuilt(_read(structure), numbers.ravel(), position)
        return value if position[0] == numbers.size else numbers
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
