"""
Conversion of arbitrary values to plain data, the values of attributes.

Plain data is text, bool, int64, float, bytes, None, a numpy array, and lists and string-keyed dicts of these.
Every conversion copies, so that a caller may change its arrays afterwards.
A value that has no exact conversion is kept as text, with an item in `faults`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np

from mttp.model.keys import name_key
from mttp.model.nesting import MAX_DEPTH
from mttp.model.values import is_masked
from mttp.semconv.registry import INT64

__all__ = [
    "Faults",
    "Plain",
    "Written",
    "count",
    "flag",
    "from_json",
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


def plain(value: object, faults: Faults) -> Plain:
    """Return a copy of `value` as plain data; arrays stay arrays, other unsupported values become text."""
    try:
        return _plain(value, faults, depth=0, arrays=True)
    except Exception:  # objects of other libraries may raise any exception
        return _as_text(value, faults)


def _plain(value: Any, faults: Faults, *, depth: int, arrays: bool) -> Plain:
    kind = type(value)
    if kind is str:
        return text(value, faults)
    if value is None or kind is bool or kind is float:
        return value
    if isinstance(value, int):
        return _integer(value, faults)
    if kind is np.ndarray and arrays and value.ndim and value.dtype in _KEPT:
        return value.copy()
    if depth >= MAX_DEPTH:
        return _as_text(value, faults)
    if isinstance(value, (list, tuple)):
        return [_plain(item, faults, depth=depth + 1, arrays=False) for item in value]
    if isinstance(value, Mapping):
        return {
            text(key, faults): _plain(item, faults, depth=depth + 1, arrays=False)
            for key, item in value.items()
        }
    return _foreign(value, faults, depth=depth, arrays=arrays)


def _foreign(value: Any, faults: Faults, *, depth: int, arrays: bool) -> Plain:
    if isinstance(value, (str, bytes, bytearray, float)):
        return _subclassed(value, faults)
    if isinstance(value, np.generic) or hasattr(value, "__array__") or hasattr(value, "tolist"):
        return _array(value, faults, depth=depth, arrays=arrays)
    if isinstance(value, Set):
        return [_plain(item, faults, depth=depth + 1, arrays=False) for item in sorted(value, key=repr)]
    return _as_text(value, faults)


def _subclassed(value: Any, faults: Faults) -> Plain:
    if isinstance(value, str):
        return text(value, faults)
    return float(value) if isinstance(value, float) else bytes(value)


def _array(value: Any, faults: Faults, *, depth: int, arrays: bool) -> Plain:
    """Convert an array of any library: to a scalar without dimensions, to a list inside of containers."""
    array = as_array(value)
    if array is None:
        return _plain(value.tolist(), faults, depth=depth + 1, arrays=arrays)
    if array.ndim and arrays and array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    if array.dtype.kind in "biufUSO":
        return _plain(array.tolist(), faults, depth=depth + 1, arrays=False)
    return _as_text(array.tolist(), faults)


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of any library as a numpy array, copying a tensor to the CPU; else None."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value) if isinstance(value, np.generic) or hasattr(value, "__array__") else None


def _integer(value: int, faults: Faults) -> int | str:
    value = int(value)
    if value in INT64:
        return value
    faults.append(f"int_out_of_range: {value:.6g}" if abs(value) < 10**300 else "int_out_of_range: huge")
    return _decimal(value)


def _decimal(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return hex(value)


def _as_text(value: object, faults: Faults) -> str:
    faults.append(f"kept_as_text: {type(value).__name__}")
    return text(scalar_text(value), faults)


def scalar_text(value: object) -> str:
    """Return the `repr` of a value, of at most 4,096 characters; never raises."""
    try:
        return repr(value)[:4096]
    except Exception as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


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
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return str(value)
    except Exception:
        return _as_text(value, faults)


def number(value: object) -> float | None:
    """
    `value` as a float where it is one number of any library, else None.

    Bools count; text and masked elements do not.
    """
    if type(value) is float:
        return value
    if isinstance(value, (str, bytes, bytearray)) or value is None:
        return None
    try:
        if isinstance(value, (bool, int, float, np.generic)):
            return float(value)
        array = None if is_masked(value) else as_array(value)
        return float(array.item()) if array is not None and array.size == 1 else None
    except Exception:  # whatever a foreign object raises when it is asked
        return None


def count(given: Any) -> int | None:
    """A whole number of any library, from 0 to what OTLP can hold; None for anything else."""
    try:
        found = None if isinstance(given, bool) else int(given.__index__())
    except (AttributeError, TypeError):
        return None
    return found if found is not None and 0 <= found < 2**63 else None


def listed(what: str, given: Any, faults: Faults) -> list[Any] | None:
    """Return the elements of a list, an array or another iterable; None for others, with a fault."""
    if given is None:
        return None
    try:
        if isinstance(given, (str, bytes, bytearray, Mapping)):
            raise TypeError
        return list(given.tolist() if hasattr(given, "tolist") else given)
    except Exception:  # objects of other libraries may raise any exception
        faults.append(f"{what}_invalid: {scalar_text(given):.80} is not a list")
        return None


def mapped(what: str, given: object, faults: Faults) -> Mapping[Any, Any]:
    """Return a mapping; an empty one for None, and for others, with a fault."""
    if isinstance(given, Mapping):
        return given
    if given is not None:
        faults.append(f"{what}_invalid: {scalar_text(given):.80} is not a mapping")
    return {}


def flag(what: str, given: Any, faults: Faults) -> bool | None:
    """Return `given` as a bool; None for None, and without a truth value, with a fault."""
    try:
        return None if given is None else bool(given)
    except Exception:  # an array of several elements, for example
        faults.append(f"{what}_invalid: {scalar_text(given):.80}")
        return None


def nanoseconds(value: object, faults: Faults) -> int | None:
    """Return a time in nanoseconds since the Unix epoch; None outside of OTLP's range, with a fault."""
    if value is None:
        return None
    found = value if type(value) is int else number(value)
    if found is not None and 0 <= found < 2**63:
        return int(found)
    faults.append(f"time_invalid: {scalar_text(value):.80}")
    return None


class Written(str):
    """Text that is JSON already, for values that are encoded once for many episodes."""

    __slots__ = ()


def to_json(value: object, faults: Faults) -> str:
    """Return `value` as JSON text in key order; NaN and infinities are written as Python's json does."""
    if type(value) is Written:
        return str.__str__(value)
    return json.dumps(_jsonable(value, faults, depth=0), ensure_ascii=False, separators=(",", ":"))


def _jsonable(value: Any, faults: Faults, *, depth: int) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {text(key, faults): _jsonable(item, faults, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)) and depth < MAX_DEPTH:
        return [_jsonable(item, faults, depth=depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return _as_text(bytes(value), faults)
    return _plain(value, faults, depth=depth, arrays=False)


def from_json(document: str) -> Any:
    """Return the value of a JSON text; the text itself if it is not JSON."""
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return document


def named(items: Mapping[Any, Any], faults: Faults) -> dict[str, Any]:
    """Return `items` by normalized name; of names that collide the first is kept, the others are faults."""
    kept: dict[str, Any] = {}
    for name, value in items.items():
        key = name_key(name)
        if key in kept or not key:
            faults.append(f"name_collision: {text(name, [])}")
        else:
            kept[key] = value
    return kept


def unknown_arguments(what: str, names: Iterable[object]) -> Faults:
    """Return a fault with the unknown arguments of `what`; empty without any."""
    listed = ", ".join(map(str, names))
    return [f"argument_unknown: {what} has no {listed}"] if listed else []


def distinct(items: Mapping[Any, Any], faults: Faults, taken: dict[str, str]) -> dict[str, Any]:
    """Return `items` by exact name; a name whose key another one in `taken` has is a fault."""
    kept: dict[str, Any] = {}
    for given, value in items.items():
        name = text(given, faults)
        key = name_key(name)
        if not key or name in kept or taken.setdefault(key, name) != name:
            faults.append(f"name_collision: {name}")
        else:
            kept[name] = value
    return kept


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
