"""
What the registry says of attributes, spans, metrics and the resource, and the types of values.

It is read from `registry.json`, which is generated, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pkgutil import get_data
from typing import Any, Final, cast

import msgspec

__all__ = [
    "INT64",
    "KINDS",
    "NO_SCALAR",
    "SCALARS",
    "AttributeDefinition",
    "Instrument",
    "SpanDefinition",
    "attribute",
    "attributes",
    "fits",
    "instruments",
    "is_scalar",
    "known_values",
    "required_of_resource",
    "spans",
    "templates",
    "type_of",
    "wanted",
]

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

KINDS: Final[Mapping[str, int]] = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
"""OTLP's number of each kind of span."""

_SCALARS = SCALARS.keys() - {"bytes"}
_NAMES = {type_: name for name, type_ in SCALARS.items()}
_DTYPES = {"b": "boolean[]", "i": "int[]", "u": "int[]", "f": "double[]"}


class _NoScalar:
    """The type of `NO_SCALAR`."""

    __slots__ = ()


NO_SCALAR: Final = _NoScalar()
"""Replaces a value that should be a scalar and is not, in readers that parse only scalars."""


class AttributeDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute, or a template: a prefix of attributes whose names end in the user's own."""

    key: str
    """Its name; of a template the prefix, without a dot at its end."""
    type: str
    """Type of its value, such as `double`, `string[]` or `any`; an enum's is that of its values."""
    is_template: bool = False
    """Whether it is a template."""
    is_content: bool = False
    """Whether it holds what people, models or environments wrote, which the content switch turns off."""
    values: tuple[str, ...] = ()
    """Known values of an enum; others may occur."""
    deprecated: tuple[str, str] | None = None
    """Why it should no longer be written, and what to do instead."""


class SpanDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of span."""

    type: str
    """Its name in the registry."""
    name: str = ""
    """The word that its name begins with; empty where that is an operation of the GenAI conventions."""
    kind: str
    """A key of `KINDS`."""
    is_root: bool = False
    """Whether it is the root of its own trace."""
    required: frozenset[str] = frozenset()
    """Attributes that it must have."""
    conditional: Mapping[str, tuple[str, frozenset[str]]] = {}
    """Attributes that it must have where another one has one of these values; where none is listed, any."""
    attributes: frozenset[str]
    """Every attribute that it is made of; of templates the prefix."""


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """How a metric is recorded."""

    name: str
    """The metric's name."""
    kind: str
    """counter, updowncounter, gauge or histogram."""
    unit: str
    """The unit, as UCUM writes it."""
    number: str
    """int or double."""
    description: str
    """What is measured."""


class _Registry(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `registry.json`."""

    attributes: tuple[AttributeDefinition, ...]
    spans: tuple[SpanDefinition, ...]
    resource: dict[str, frozenset[str]]
    metrics: tuple[Instrument, ...]


@cache
def _registry() -> _Registry:
    data = cast(bytes, get_data("mttp.semconv", "registry.json"))
    return msgspec.json.decode(data, type=_Registry)


@cache
def attributes() -> dict[str, AttributeDefinition]:
    """Return all attributes and templates by key, the convention's own before those it reuses."""
    return {definition.key: definition for definition in _registry().attributes}


@cache
def templates() -> frozenset[str]:
    """Return the keys of the templates."""
    return frozenset(definition.key for definition in _registry().attributes if definition.is_template)


@cache
def spans() -> dict[str, SpanDefinition]:
    """Return the kinds of spans by type."""
    return {definition.type: definition for definition in _registry().spans}


@cache
def instruments() -> dict[str, Instrument]:
    """Return the instrument of each metric by the metric's name."""
    return {instrument.name: instrument for instrument in _registry().metrics}


def known_values(key: str) -> tuple[str, ...]:
    """Return the known values of an enum."""
    return attributes()[key].values


def required_of_resource() -> Mapping[str, frozenset[str]]:
    """Return the attributes that the resource must have, by the entity that they are of."""
    return _registry().resource


@lru_cache(maxsize=4096)
def attribute(key: str) -> AttributeDefinition | None:
    """Return the definition of an attribute, which may be a template; None for an unknown attribute."""
    definition = attributes().get(key)
    if definition is not None and not definition.is_template:
        return definition
    return next((attributes()[prefix] for prefix in templates() if key.startswith(f"{prefix}.")), None)


@lru_cache(maxsize=4096)
def wanted(key: str) -> str | None:
    """Return an attribute's type in the registry; None for an unknown attribute."""
    definition = attribute(key)
    return None if definition is None else definition.type


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
    value_type = type_of(value)
    return value_type in (expected, "[]")


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
