"""The type of a value, in the registry's words."""

from __future__ import annotations

from typing import Any

__all__ = ["fits", "type_of"]

_NAMES: dict[type, str] = {str: "string", bool: "boolean", int: "int", float: "double", bytes: "bytes"}
_TYPES = {name: type_ for type_, name in _NAMES.items()}
_DTYPES = {"b": "boolean[]", "i": "int[]", "u": "int[]", "f": "double[]"}


def fits(value: Any, wanted: str) -> bool:
    """Whether a value is of the type; an integer is no double, an array without elements any array."""
    if wanted == "any":
        return True
    if wanted in _TYPES:
        return type(value) is _TYPES[wanted]
    found = type_of(value)
    return found in (wanted, "[]")


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
