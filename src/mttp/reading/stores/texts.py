"""Converts attributes of stores that keep strings only to the types of the convention."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mttp.semconv import attributes as a
from mttp.semconv.registry import wanted

__all__ = ["EMPTY", "TEXTS", "StringLosses", "typed"]

EMPTY = "-"
"""What VictoriaTraces returns for an empty string."""

TEXTS = (
    "this store keeps strings only: attributes of the convention are converted back to numbers and arrays, "
    "others, such as metadata, stay strings"
)
"""The loss of a store that keeps strings only."""
_MAX_NAMED = 20
"""Largest number of attributes of unknown type that are listed as losses."""
_NO_JSON = "json: unsupported value: "
"""What the Collector writes before NaN and infinities."""

_DTYPES = {
    a.OBSERVATION_VALUE: a.OBSERVATION_DTYPE,
    a.ACTION_VALUE: a.ACTION_DTYPE,
    a.EPISODE_FINAL_OBSERVATION_VALUE: a.EPISODE_FINAL_OBSERVATION_DTYPE,
}
_COLUMN = f"{a.STEPS_COLUMN}."
_LISTS = (a.STEPS_START_TIMES, a.STEPS_END_TIMES)


def typed(found: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, converted to the types of the registry; others are unchanged."""
    return {key: _converted(_type(key, found), value) for key, value in found.items()}


class StringLosses:
    """Names the attributes whose original types a store of strings does not tell, each once."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def of(self, attributes: Mapping[str, Any]) -> Iterator[str]:
        """The losses of a span's attributes that were not named yet."""
        written_as_json = {str(omission).partition(": ")[0] for omission in attributes.get(a.OMISSIONS) or ()}
        for key in _untyped(attributes):
            if len(self._named) < _MAX_NAMED and key not in self._named | written_as_json:
                self._named.add(key)
                yield f"{key} is returned as a string and stays one; its original type is unknown"


def _untyped(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Keys whose strings may have been numbers, booleans or lists: the registry allows any type."""
    for key, value in attributes.items():
        if type(value) is str and _type(key, attributes) == "any" and _is_json(value):
            yield key


def _type(key: str, attributes: Mapping[str, Any]) -> str:
    """The type of an attribute, from the registry and other attributes of the span."""
    if _DTYPES.get(key) in attributes or key in _LISTS:
        return "any[]"
    if key == a.ANNOTATION_VALUE:
        return _of_key(str(attributes.get(a.ANNOTATION_KEY, "")))
    return f"{_of_key(key[len(_COLUMN) :])}[]" if key.startswith(_COLUMN) else _of_key(key)


def _of_key(key: str) -> str:
    """The type in the registry; string for unknown attributes, which are not converted."""
    return wanted(key) or "string"


def _converted(type_: str, value: Any) -> Any:
    try:
        if type_.endswith("[]"):
            return _array(type_[: -len("[]")], value)
        return _CONVERTED[type_](value) if type_ in _CONVERTED else value
    except (ValueError, RecursionError):  # a truncated or otherwise invalid value stays a string
        return value


def _array(type_: str, value: Any) -> Any:
    if type(value) is str:
        value = json.loads(value) if value.startswith("[") else value
    if type(value) is not list or type_ not in _CONVERTED:
        return value
    return [_array(type_, item) if type(item) is list else _CONVERTED[type_](item) for item in value]


def _integer(value: Any) -> Any:
    return int(value) if type(value) is str else value


def _double(value: Any) -> Any:
    if type(value) is str:
        return float(value.removeprefix(_NO_JSON))
    return float(value) if type(value) is int else value


def _boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if type(value) is str else value


_CONVERTED: Mapping[str, Callable[[Any], Any]] = {"int": _integer, "double": _double, "boolean": _boolean}


def _is_json(text: str) -> bool:
    """Whether the string is JSON of another type than string."""
    try:
        return not isinstance(json.loads(text), str)
    except (ValueError, RecursionError):
        return False
