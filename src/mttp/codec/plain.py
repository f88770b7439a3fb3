"""
Conversion of arbitrary values to plain data, the values of attributes.

Plain data is text, bool, int64, float, bytes, None, a numpy array, and lists and string-keyed dicts of these.
Every conversion copies, so that a caller may change its arrays afterwards.
A value that has no exact conversion is kept as text, with an item in `faults`; its neighbours are converted.
No value is compared, nor asked for its length or truth, since it may answer with an array or an exception.
What a value holds more than once is copied each time up to `MAX_COPIED_BYTES` in all.
"""

from __future__ import annotations

import json
import operator
import sys
from collections import UserString
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from mttp.codec.sharing import CYCLE, ITEM_BYTES, MAX_COPIED_BYTES, SHORT, TOO_LARGE, Sharing
from mttp.model.interrupts import raise_interrupt
from mttp.model.keys import name_key
from mttp.model.nesting import MAX_DEPTH
from mttp.model.reprs import bounded_repr, is_tangled, type_name
from mttp.model.values import has_masked, is_masked
from mttp.semconv.registry import INT64

__all__ = [
    "Faults",
    "Plain",
    "Written",
    "count",
    "flag",
    "listed",
    "mapped",
    "distinct",
    "named",
    "nanoseconds",
    "number",
    "little_endian",
    "plain",
    "scalar_text",
    "seed",
    "text",
    "to_json",
    "unknown_arguments",
]

Plain: TypeAlias = Any
Faults: TypeAlias = list[str]

_KEPT = frozenset(np.dtype(code) for code in "?bhilBHILefd")
"""The dtypes of arrays that need no conversion."""
_UNCHANGED = frozenset({float, bool, type(None)})
_CONTAINERS = frozenset({list, tuple, dict})
_ATOMS = frozenset({*_UNCHANGED, int, str})
_NO_LISTS = (str, bytes, bytearray, memoryview, UserString)
"""Sequences whose items are no values of their own."""
_DEEP_BYTES = MAX_COPIED_BYTES // 16
"""What the text of a container that is nested too deeply counts: few are printed twice, since it is slow."""
_MAX_JSON_BITS = 14_000
"""Integers up to this size can be read from JSON: Python takes 4,300 digits."""


def plain(value: Any, faults: Faults) -> Plain:
    """Return a copy of `value` as plain data; arrays stay arrays, other unsupported values become text."""
    kind = type(value)
    if kind is str:
        return text(value, faults)
    if kind in _UNCHANGED or (kind is int and value in INT64):
        return value
    if kind is np.ndarray and value.ndim and value.dtype in _KEPT and not is_inflated(value):
        return value.copy()
    return _Conversion(faults).converted(value, 0, arrays=True)


class _Conversion:
    """The conversion of one value, to plain data or to what `json` can encode."""

    __slots__ = ("_faults", "_is_json", "_sharing")

    def __init__(self, faults: Faults, *, is_json: bool = False) -> None:
        self._faults = faults
        self._is_json = is_json
        self._sharing = Sharing()

    def converted(self, value: Any, depth: int, *, arrays: bool = False) -> Plain:
        """Return a value of any type; whatever its methods raise costs nothing but the value."""
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind in _UNCHANGED:
            return value
        if kind is int:
            return self._integer(value)
        try:
            return (
                self._contained(value, depth) if kind in _CONTAINERS else self._foreign(value, depth, arrays)
            )
        except Exception as error:  # objects of other libraries may raise any exception
            raise_interrupt(error)
            return _as_text(value, self._faults)

    def _contained(self, value: Any, depth: int) -> Plain:
        """Return a list, a tuple, or a mapping."""
        if depth >= MAX_DEPTH:
            is_first = self._sharing.admits(value, _DEEP_BYTES)
            return _as_text(value, self._faults) if is_first else self._left_out(TOO_LARGE, value)
        is_exact = type(value) in _CONTAINERS
        if marker := self._sharing.enter(value, ITEM_BYTES * len(value) if is_exact else 0):
            return self._left_out(marker, value)
        try:
            if isinstance(value, Mapping):
                return self._mapping(value, depth + 1, is_exact)
            return self._items(value if is_exact else self._taken(value), depth + 1)
        finally:
            self._sharing.leave(value)

    def _items(self, items: Any, depth: int) -> list[Plain]:
        if type(items) is list or type(items) is tuple:
            kinds = set(map(type, items))
            if kinds <= _UNCHANGED or (kinds == _INTEGERS and min(items) in INT64 and max(items) in INT64):
                return list(items)
        return [self.converted(item, depth) for item in items]

    def _mapping(self, value: Mapping[Any, Any], depth: int, is_exact: bool) -> dict[str, Plain]:
        copy: dict[str, Plain] = {}
        # Not the items of a dict, whose iterator crashes Python 3.11 where memory runs out.
        for key, item in zip(value, value.values()) if is_exact else self._taken(value.items()):  # noqa: B905
            name = key if type(key) is str and key.isascii() else text(key, self._faults)
            if name in copy:
                self._faults.append(f"name_collision: {name}")
            else:
                copy[name] = self.converted(item, depth)
        return copy

    def _taken(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield what an object of another class iterates over, as long as it can be copied."""
        for item in items:
            if not self._sharing.take(ITEM_BYTES):
                self._left_out(TOO_LARGE, items)
                return
            yield item

    def _foreign(self, value: Any, depth: int, arrays: bool) -> Plain:
        if issubclass(type(value), np.generic):
            return self._scalar(value)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, (bytes, bytearray)):
            return self._bytes(value)
        if isinstance(value, (list, tuple, Mapping)):
            return self._contained(value, depth)
        if isinstance(value, type):
            return _as_text(value, self._faults)
        if hasattr(value, "__array__") or hasattr(value, "tolist"):
            return self._array(value, depth, arrays)
        if isinstance(value, Set):
            return self._contained(sorted(self._taken(value), key=scalar_text), depth)
        if isinstance(value, Sequence) and not isinstance(value, _NO_LISTS):
            return self._contained(value, depth)
        return _as_text(value, self._faults)

    def _text(self, value: str) -> str:
        if len(value) > SHORT and not self._sharing.admits(value, len(value)):
            return self._left_out(TOO_LARGE, value)
        return value if value.isascii() else text(value, self._faults)

    def _bytes(self, value: Any) -> Plain:
        if self._is_json:
            return _as_text(value, self._faults)
        with memoryview(value) as view:
            if not self._sharing.admits(value, view.nbytes):
                return self._left_out(TOO_LARGE, value)
            return view.tobytes()

    def _integer(self, value: int) -> int | str:
        if value in INT64 or (self._is_json and value.bit_length() <= _MAX_JSON_BITS):
            return value
        self._faults.append(
            f"int_out_of_range: {value:.6g}" if abs(value) < 10**300 else "int_out_of_range: huge"
        )
        return _decimal(value)

    def _scalar(self, value: Any) -> Plain:
        """Return a number, a text or a time of numpy."""
        if issubclass(type(value), str):
            return self._text(str.__str__(value))
        if is_masked(value):
            return None
        kind = value.dtype.kind
        if kind == "f":
            return float(value)
        if kind in "biu":
            return self._integer(int(value)) if kind != "b" else bool(value)
        return self._bytes(value) if kind == "S" else self._texts(np.asarray(value))

    def _array(self, value: Any, depth: int, arrays: bool) -> Plain:
        """Convert an array of any library: to a scalar without dimensions, to a list inside of containers."""
        array = as_array(value)
        if array is None:
            items = value.tolist()
            if type(items) not in _CONTAINERS and type(items) not in _ATOMS:
                return _as_text(value, self._faults)
            return self._entered(value, items, depth, 0)
        if is_masked(value):
            return None
        kind, is_masked_array = array.dtype.kind, has_masked(value)
        if is_inflated(array):
            return self._left_out(TOO_LARGE, value)
        if array.ndim and arrays and kind in "biuf" and array.dtype.itemsize <= 8 and not is_masked_array:
            return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
        items = (
            value.tolist() if is_masked_array else array.tolist() if kind in "biufUSO" else self._texts(array)
        )
        return (
            _as_text(value, self._faults)
            if items is value
            else self._entered(value, items, depth, array.size)
        )

    def _entered(self, value: Any, items: Any, depth: int, size: int) -> Plain:
        """Return the items of an object."""
        if marker := self._sharing.enter(value, ITEM_BYTES * size):
            return self._left_out(marker, value)
        try:
            return self.converted(items, depth)
        finally:
            self._sharing.leave(value)

    def _texts(self, array: Any) -> Any:
        """Return the elements of an array of times, complex numbers or records as text."""
        self._faults.append(f"kept_as_text: {array.dtype.name}")
        show = str if array.dtype.kind in "mMc" else bounded_repr
        texts: Any = np.empty(array.shape, object)
        texts.flat = [show(item) for item in array.ravel()]
        return texts.tolist()

    def _left_out(self, marker: str, value: object) -> str:
        """Return the marker of a value that is not copied."""
        why = (
            "holds itself" if marker is CYCLE else f"is left out: beyond {MAX_COPIED_BYTES:,} bytes of copies"
        )
        fault = f"{_MARKED[marker]}: a {type_name(value)} {why}"
        if fault not in self._faults:
            self._faults.append(fault)
        return marker


_INTEGERS = {int}
_MARKED = {CYCLE: "cycle", TOO_LARGE: "too_large"}


def is_inflated(array: Any) -> bool:
    """Return whether an array is larger than all its memory, as views with a stride of zero are."""
    if array.nbytes <= MAX_COPIED_BYTES:
        return False
    strides = zip(array.shape, array.strides, strict=True)
    return bool(array.nbytes > array.itemsize + sum((size - 1) * abs(stride) for size, stride in strides))


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of any library as a numpy array, copying a tensor to the CPU; else None."""
    if issubclass(type(value), type):
        return None
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value) if isinstance(value, np.generic) or hasattr(value, "__array__") else None


def _decimal(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return hex(value)


def _as_text(value: object, faults: Faults) -> str:
    faults.append(f"kept_as_text: {type_name(value)}")
    return text(bounded_repr(value), faults)


def scalar_text(value: object) -> str:
    """Return the `repr` of a value, of at most 4,096 characters; never raises."""
    return bounded_repr(value)


def little_endian(array: np.ndarray[Any, Any]) -> bytes:
    """Return the elements of an array as little-endian bytes."""
    if not _IS_LITTLE or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


_IS_LITTLE = sys.byteorder == "little"


def text(value: object, faults: Faults) -> str:
    """Return `value` as text that UTF-8 can encode: lone surrogates become backslash escapes."""
    if type(value) is not str:
        value = _as_str(value, faults)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        faults.append("surrogates_escaped")
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _as_str(value: object, faults: Faults) -> str:
    """Return `str` of a value; of a subclass of str, such as an enum, the text itself."""
    try:
        if isinstance(value, str):
            return str.__str__(value)
        has_own_text = type(value).__str__ is not object.__str__
        holds_objects = isinstance(value, np.ndarray) and value.dtype.hasobject
        if type(value) in _CONTAINERS or holds_objects or (not has_own_text and is_tangled(value)):
            return bounded_repr(value)
        return str.__str__(str(value))
    except Exception as error:  # objects of other libraries may raise any exception
        raise_interrupt(error)
        return _as_text(value, faults)


def number(value: object) -> float | None:
    """
    `value` as a float where it is one number of any library, else None.

    Bools count; text and masked elements do not.
    """
    if type(value) is float:
        return value
    try:
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, int):
            return float(int.__int__(value))
        array = None if is_masked(value) else as_array(value)
        if array is None or array.size != 1:
            return None
        item = array.item()
        is_number = array.dtype.kind in "biuf" or isinstance(item, (int, float))
        return float(item) if is_number else None
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return None


def count(given: Any) -> int | None:
    """A whole number of any library, from 0 to what OTLP can hold; None for anything else."""
    try:
        integer = None if type(given) is bool else int.__int__(operator.index(given))
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return None
    return integer if integer is not None and integer >= 0 and integer in INT64 else None


def listed(what: str, given: Any, faults: Faults) -> list[Any] | None:
    """Return the elements of a list, an array or another iterable; None for others, with a fault."""
    if given is None:
        return None
    try:
        if isinstance(given, (str, bytes, bytearray, Mapping)):
            raise TypeError
        items = given.tolist() if hasattr(given, "tolist") else list(islice(given, _MAX_LISTED))
        if type(items) is list:
            return items
    except Exception as error:  # objects of other libraries may raise any exception
        raise_interrupt(error)
    faults.append(f"{what}_invalid: {scalar_text(given):.80} is not a list")
    return None


_MAX_LISTED = 1 << 24
"""The maximum number of items that are taken from an iterator, which may have no end."""


def mapped(what: str, given: object, faults: Faults) -> Mapping[Any, Any]:
    """Return a mapping; an empty one for None, and for others, with a fault."""
    if type(given) is dict:
        return given
    if given is not None:
        try:
            if isinstance(given, Mapping):
                return dict(islice(given.items(), _MAX_LISTED))
        except Exception as error:  # objects of other libraries may raise any exception
            raise_interrupt(error)
        faults.append(f"{what}_invalid: {scalar_text(given):.80} is not a mapping")
    return {}


def flag(what: str, given: Any, faults: Faults) -> bool | None:
    """Return `given` as a bool; None for None, and without a truth value, with a fault."""
    try:
        return None if given is None else bool(given)
    except Exception as error:  # an array of several elements, for example
        raise_interrupt(error)
        faults.append(f"{what}_invalid: {scalar_text(given):.80}")
        return None


def nanoseconds(value: object, faults: Faults) -> int | None:
    """Return a time in nanoseconds since the Unix epoch; None outside of OTLP's range, with a fault."""
    if value is None:
        return None
    nanos = value if type(value) is int else number(value)
    if nanos is not None and 0 <= nanos < 2**63:
        return int(nanos)
    faults.append(f"time_invalid: {scalar_text(value):.80}")
    return None


class Written(str):
    """Text that is JSON already, for values that are encoded once for many episodes."""

    __slots__ = ()


def to_json(value: object, faults: Faults) -> str:
    """Return `value` as JSON text in key order; NaN and infinities are written as Python's json does."""
    if type(value) is Written:
        return str.__str__(value)
    copy = _Conversion(faults, is_json=True).converted(value, 0)
    return json.dumps(copy, ensure_ascii=False, separators=(",", ":"))


def named(items: Mapping[Any, Any], faults: Faults) -> dict[str, Any]:
    """Return `items` by normalized name; of names that collide the first is kept, the others are faults."""
    by_key: dict[str, Any] = {}
    for item_name, value in items.items():
        name = text(item_name, faults)
        key = name_key(name)
        if key in by_key or not key:
            faults.append(f"name_collision: {name}")
        else:
            by_key[key] = value
    return by_key


def unknown_arguments(what: str, names: Iterable[object]) -> Faults:
    """Return a fault with the unknown arguments of `what`; empty without any."""
    listed = ", ".join(map(str, names))
    return [f"argument_unknown: {what} has no {listed}"] if listed else []


def distinct(items: Mapping[Any, Any], faults: Faults, taken: dict[str, str]) -> dict[str, Any]:
    """Return `items` by exact name; a name whose key another one in `taken` has is a fault."""
    known = _keys_of(tuple(items)) if {*map(type, items)} == {str} else None
    if known is not None and (not taken or known.items() <= taken.items()):
        taken.update(known)
        return {**items}
    by_name: dict[str, Any] = {}
    for item_name, value in items.items():
        name = text(item_name, faults)
        key = name_key(name)
        if not key or name in by_name or taken.setdefault(key, name) != name:
            faults.append(f"name_collision: {name}")
        else:
            by_name[name] = value
    return by_name


@lru_cache(maxsize=256)
def _keys_of(names: tuple[str, ...]) -> Mapping[str, str] | None:
    """Return the names by key; None if keys collide, or a name is not recorded as it is."""
    known = {name_key(name): name for name in names if name.isascii()}
    return None if "" in known or len(known) < len(names) else known


def seed(value: object) -> int | str | None:
    """Return a seed as an integer if its text is one, else as text."""
    if value is None:
        return None
    document = text(value, [])
    try:
        parsed = int(document)
    except ValueError:
        return document
    return parsed if str(parsed) == document else document
