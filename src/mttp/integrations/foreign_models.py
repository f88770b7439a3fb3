"""Reads the pydantic objects of other libraries as data, without a warning of pydantic's in the program."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from mttp.codec.plain import scalar_text
from mttp.model.interrupts import raise_interrupt

__all__ = ["as_data", "as_record", "fields"]

_SCALARS = frozenset({str, int, float, bool, type(None)})


def fields(value: Any) -> Mapping[str, Any]:
    """
    Return the fields of an object, also those that its class does not declare, or a mapping as it is.

    Anything else has none. Pydantic's `getattr` takes microseconds for a missing field, and its serializer
    warns of each value that is not of the declared type.
    """
    if isinstance(value, Mapping):
        return value
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return {}
    extra = getattr(value, "__pydantic_extra__", None)
    return {**attributes, **extra} if extra else attributes


def as_data(value: Any, omitted: frozenset[str] = frozenset()) -> Any:
    """
    Return a value whose pydantic objects are dicts, without the omitted fields and those that are None.

    What is no list, mapping or pydantic object stays as it is, and so does an object within itself.
    """
    return _data(value, omitted, {})


def _data(value: Any, omitted: frozenset[str], known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    is_model = hasattr(kind, "model_dump")
    if not is_model and kind not in (dict, list, tuple):
        return value
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = value
    if is_model:
        known[id(value)] = {
            name: _data(field, omitted, known)
            for name, field in fields(value).items()
            if field is not None and name not in omitted
        }
    elif kind is dict:
        known[id(value)] = {name: _data(item, omitted, known) for name, item in value.items()}
    else:
        known[id(value)] = [_data(item, omitted, known) for item in value]
    return known[id(value)]


def as_record(model: Any, *, exclude: frozenset[str] = frozenset()) -> dict[str, Any]:
    """
    Return a pydantic object as its library saves it in JSON, without fields that are None.

    A value that its library can't save is text, and costs no other value.
    """
    options: dict[str, Any] = {"exclude": exclude} if exclude else {}
    options |= {"warnings": False} if hasattr(type(model), "__pydantic_serializer__") else {}
    try:
        record: dict[str, Any] = model.model_dump(mode="json", exclude_none=True, **options)
    except Exception as error:
        raise_interrupt(error)
        return {name: _saved(field, ()) for name, field in fields(model).items() if name not in exclude}
    return record


def _saved(value: Any, above: tuple[int, ...]) -> Any:
    """Return a value of an object that can't be saved whole; `above` are the ids of what contains it."""
    if type(value) in _SCALARS:
        return value
    if id(value) in above:
        return "<cycle>"
    within = (*above, id(value))
    if hasattr(type(value), "model_dump") or type(value) is dict:
        return {str(name): _saved(item, within) for name, item in fields(value).items()}
    if type(value) in (list, tuple):
        return [_saved(item, within) for item in value]
    return value.isoformat() if isinstance(value, date) else scalar_text(value)
