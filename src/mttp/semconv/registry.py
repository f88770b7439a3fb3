"""Types of attributes in the registry, and types of values."""

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
"""The Python type for each scalar type of the registry."""

_SCALARS = SCALARS.keys() - {"bytes"}
_NAMES = {type_: name for name, type_ in SCALARS.items()}
_DTYPES = {"b": "boolean[]", "i": "int[]", "u": "int[]", "f": "double[]"}


class _NoScalar:
    """The type of `NO_SCALAR`."""

    __slots__ = ()


NO_SCALAR: Final = _NoScalar()
"""Replaces a value that should be a scalar and is not, in readers that parse only scalars."""


@lru_cache(maxsize=4096)
def wanted(key: str) -> str | None:
    """Return an attribute's type in the registry; None for an unknown attribute."""
    if key in ATTRIBUTE_TYPES:
        return ATTRIBUTE_TYPES[key]
    return next((type_ for prefix, type_ in TEMPLATE_TYPES.items() if key.startswith(f"{prefix}.")), None)


@lru_cache(maxsize=4096)
def is_scalar(key: str) -> bool:
    """Return whether an attribute is a string, a number or a boolean by the registry."""
    return wanted(key) in _SCALARS


def fits(value: Any, expected: str) -> bool:
    """Return whether a value has the type; an integer is not a double, an empty array is any array."""
    if expected == "any":
        return True
    if expected in SCALARS:
        return type(value) is SCALARS[expected]
    found = type_of(value)
    return found in (expected, "[]")


def type_of(value: Any) -> str:
    """
    Return the type of a value, e.g. `double` or `int[]`.

    Beyond the registry's types there are `map`, arrays of several types such as `(double|int)[]`,
    `[]` for an empty array, and `empty` for None.
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
