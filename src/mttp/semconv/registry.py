"""Types of attributes: what the registry of the convention says, and what a value is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from mttp.semconv.types import ATTRIBUTE_TYPES, TEMPLATE_TYPES

__all__ = ["INT64", "NO_SCALAR", "SCALARS", "fits", "is_scalar", "type_of", "wanted"]

INT64: Final = range(-(2**63), 2**63)
"""The integers that OTLP can hold."""

SCALARS: Final[dict[str, type]] = {
    "string": str,
    "boolean": bool,
    "int": int,
    "double": float,
    "bytes": bytes,
}
"""The type of Python's that a value of such a type has, where it is one value."""

_SCALARS = SCALARS.keys() - {"bytes"}
_NAMES = {type_: name for name, type_ in SCALARS.items()}
_DTYPES = {"b": "boolean[]", "i": "int[]", "u": "int[]", "f": "double[]"}


class _NoScalar:
    """The type of `NO_SCALAR`."""

    __slots__ = ()


NO_SCALAR: Final = _NoScalar()
"""Stands for the value of an attribute that should be a scalar and is none, where only scalars are read."""


@lru_cache(maxsize=4096)
def wanted(key: str) -> str | None:
    """The type that the registry has for an attribute; None where it does not know the attribute."""
    if key in ATTRIBUTE_TYPES:
        return ATTRIBUTE_TYPES[key]
    return next((type_ for prefix, type_ in TEMPLATE_TYPES.items() if key.startswith(f"{prefix}.")), None)


@lru_cache(maxsize=4096)
def is_scalar(key: str) -> bool:
    """Whether an attribute should be a text, a number or a truth by the registry."""
    return wanted(key) in _SCALARS


def fits(value: Any, expected: str) -> bool:
    """Whether a value is of the type; an integer is no double, an array without elements any array."""
    if expected == "any":
        return True
    if expected in SCALARS:
        return type(value) is SCALARS[expected]
    found = type_of(value)
    return found in (expected, "[]")


def type_of(value: Any) -> str:
    """
    The type of a value, e.g. `double` or `int[]`.

    What the registry has no word for is a `map`, an array of several types like `(double|int)[]`,
    an array without elements `[]`, and `empty`.
    """
    if value is None:
        return "empty"
    if hasattr(value, "dtype"):  # a numpy array: memory keeps these
        return _DTYPES.get(value.dtype.kind, "array") if value.size else "[]"
    if isinstance(value, (list, tuple)):
        return _array(sorted({type_of(item) for item in value if item is not None}))
    return _NAMES.get(type(value), "map")


def _array(types: list[str]) -> str:
    if not types:
        return "[]"
    return f"{types[0]}[]" if len(types) == 1 else f"({'|'.join(types)})[]"
