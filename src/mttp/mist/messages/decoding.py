"""
Decodes payloads by the rules of the reference implementation.

Names match in any case, and null is the zero value.
Of a repeated field the last one is used, and maps are merged.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import ValidationError

from mttp.errors import EncodeError, PayloadError
from mttp.mist.messages.canonical import encode
from mttp.mist.messages.payloads import Payload, WireObject
from mttp.mist.messages.syntax import JsonDocument, JsonFault

P = TypeVar("P", bound=Payload)
Q = TypeVar("Q", bound=WireObject)

_EXPECTED = {
    "string_type": "expected a string",
    "bool_type": "expected true or false",
    "int_type": "expected an integer, written without fraction and exponent",
    "float_type": "expected a number",
    "finite_number": "expected a number within float64",
    "greater_than_equal": "expected an integer of 64 bits",
    "less_than_equal": "expected an integer of 64 bits",
    "tuple_type": "expected an array",
    "dict_type": "expected an object",
    "model_type": "expected an object",
}
"""The reason in an error, by pydantic's type of the error."""


class _Field(NamedTuple):
    """How to decode a field."""

    name: str
    """The name in JSON."""
    shape: Literal["integer", "other", "list", "map"]
    texts: bool
    """Whether it is a list or a map of texts, in which null is the empty text."""
    part: type[WireObject] | None
    """The class of its elements if they are objects."""


def decode(payload: type[P], raw: bytes) -> P:
    """Decode a payload; raises PayloadError with the position if it is not of this type."""
    document = JsonDocument(raw)
    with suppress(ValueError, RecursionError):  # a ValidationError is a ValueError
        return _decode_fast(payload, document)
    try:
        return _decoded(payload, document)
    except JsonFault as fault:
        raise PayloadError(f"{payload.TYPE}: {fault.reason}", position=document.position(fault.at)) from fault
    except RecursionError as error:
        raise PayloadError(f"{payload.TYPE}: nested too deeply") from error


def fold(name: str) -> str:
    """Return the name with its case folded, as the reference implementation compares names."""
    return name.lower().replace("\u017f", "s")


def _decode_fast(payload: type[P], document: JsonDocument) -> P:
    """Decode without the rules of the reference; raises ValueError if one of them may apply."""
    fields, values = _fields(payload), document.plain()
    if (
        not isinstance(values, dict)
        or not values.keys() <= fields.keys()
        or any(field.part for field in fields.values())
    ):
        raise ValueError("needs the rules of the reference")
    return payload.model_validate(values)


def _decoded(payload: type[P], document: JsonDocument) -> P:
    start = document.start()
    if document.kind(start) == "null":
        return payload()
    values, places = _values(payload, document, start)
    return _validated(payload, values, places, start)


def _validated(part: type[Q], values: dict[str, Any], places: dict[str, int], start: int) -> Q:
    try:
        return part.model_validate(values)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        reason = _EXPECTED.get(wrong["type"], wrong["msg"].removeprefix("Value error, "))
        raise JsonFault(f"{place}: {reason}", places.get(place.partition(".")[0], start)) from error


def _values(part: type[WireObject], document: JsonDocument, at: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the values of an object's fields by name in JSON, and the position of each."""
    if document.kind(at) != "an object":
        raise JsonFault(f"{document.kind(at)}, expected an object", at)
    fields = _fields(part)
    values: dict[str, Any] = {}
    places: dict[str, int] = {}
    for key, start, end in document.members(at):
        field = fields.get(key) or fields.get(fold(key))
        if field is None:
            _keep(part, values, key, document, start)
            continue
        if field.name in values:  # the last one is used, but the others must be valid too
            _validated(part, values, places, at)
        places[field.name] = start
        _read(field, values, document, start, end)
    return values, places


def _keep(part: type[WireObject], values: dict[str, Any], key: str, document: JsonDocument, at: int) -> None:
    """Keep an unknown field, unless its value can't be represented."""
    with suppress(JsonFault, EncodeError):
        value = document.value(at)
        encode({key: value})
        if key not in part.model_fields:
            values[key] = value


def _read(field: _Field, values: dict[str, Any], document: JsonDocument, at: int, end: int) -> None:
    kind = document.kind(at)
    if kind == "null":
        if field.shape in ("list", "map"):
            values.pop(field.name, None)
    elif field.part and kind == "an array":
        values[field.name] = [
            {} if document.kind(place) == "null" else _values(field.part, document, place)[0]
            for place in document.elements(at)
        ]
    else:
        value = document.value(at)
        if field.texts:
            value = _without_null(value)
        if field.shape == "integer" and document.text[at:end] == "-0":
            value = 0
        if field.shape == "map" and isinstance(value, dict):
            value = values.get(field.name, {}) | value
        values[field.name] = value


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "" if item is None else item for name, item in value.items()}
    return ["" if item is None else item for item in value] if isinstance(value, list) else value


@cache
def _fields(part: type[WireObject]) -> dict[str, _Field]:
    """Return the fields by name in JSON."""
    fields = {}
    for name, field in part.model_fields.items():
        wire = field.serialization_alias or name
        fields[wire] = _Field(wire, *_shape(field.annotation))
    return fields


def _shape(
    annotation: Any,
) -> tuple[Literal["integer", "other", "list", "map"], bool, type[WireObject] | None]:
    """Return the shape of a field's annotation, whether it holds texts, and the class of its elements."""
    if NoneType in get_args(annotation):
        annotation = get_args(get_args(annotation)[0])[0]
    inner = get_args(annotation)
    if get_origin(annotation) is dict:
        return "map", inner[1] is str, None
    if get_origin(annotation) is tuple:
        return "list", inner[0] is str, None if inner[0] is str else inner[0]
    return ("integer" if annotation is int else "other"), False, None
