"""
Fields of values, and their attributes: each is converted to its declared type.

A field that can't be converted costs only itself: it gets its default, with the fault `{field}_invalid`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from mttp.codec import templates
from mttp.codec.plain import Faults, Plain, number, plain, scalar_text, seed, text, to_json
from mttp.errors import MttpError
from mttp.model.declarations import DOCUMENTS, Field, keys, table
from mttp.model.episodes import Agent, Annotation, Call, Episode, Grade, Reward, Spec, Step, Tokens
from mttp.model.interrupts import raise_interrupt
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.model.values import Value
from mttp.semconv import attributes as a
from mttp.semconv.registry import INT64, wanted

__all__ = [
    "OF_SPANS",
    "checked",
    "checked_text",
    "checked_value",
    "convert",
    "decode",
    "encode",
    "encode_value",
    "flag",
    "integer",
    "is_absent",
    "mapping",
    "members",
    "of_span",
    "optional_text",
]

_V = TypeVar("_V", bound=Value)
_Converter: TypeAlias = Callable[[Any, Faults], Any]
"""Converts a value that is not None; it returns None, or raises, if the value can't be converted."""

_ABSENT = frozenset({"NotGiven", "Omit", "UnsetType", "PydanticUndefinedType"})
"""Names of the types by which openai, msgspec and pydantic say that an argument is absent."""


def is_absent(value: object) -> bool:
    """Return whether an argument is not given: None, or a marker such as `openai.NOT_GIVEN`."""
    return value is None or type(value).__name__ in _ABSENT


def _text(value: Any, faults: Faults) -> str | None:
    """Return a name as text; None for a container, whose text names nothing."""
    kind = type(value)
    if not issubclass(kind, (str, int, float)):
        if hasattr(kind, "__len__") and not (hasattr(kind, "ndim") and value.ndim == 0):
            return None
        if cast(object, kind.__str__) is object.__str__:
            faults.append(f"kept_as_text: {kind.__name__}")
    return text(value, faults)


def _integer(value: Any, _: Faults) -> int | None:
    if type(value) is not int:
        if isinstance(value, bool):
            return None
        try:
            value = int(value.__index__())
        except (AttributeError, TypeError):  # a float of any library, or an array with one element
            parsed = number(value)
            value = int(parsed) if parsed is not None and parsed.is_integer() else None
    return value if value is not None and value in INT64 else None


def _number(value: Any, _: Faults) -> float | None:
    return number(value)


def _flag(value: Any, _: Faults) -> bool:
    return bool(value)


def _listed(value: Any) -> list[Any]:
    """Return the elements of a list or an array; raises TypeError for text and mappings."""
    if isinstance(value, (bytes, bytearray, Mapping)):
        raise TypeError
    return list(value.tolist() if hasattr(value, "tolist") else value)


def _texts(value: Any, faults: Faults) -> list[str]:
    return [text(item, faults) for item in ([value] if isinstance(value, str) else _listed(value))]


def _numbers(value: Any, _: Faults) -> list[float] | None:
    numbers = [number(item) for item in _listed(value)]
    return None if None in numbers else numbers  # type: ignore[return-value]


def _plain(value: Any, faults: Faults) -> Plain:
    """Return plain data as it is read back: arrays as lists."""
    data = plain(value, faults)
    return data.tolist() if hasattr(data, "tolist") else data


def _integers(value: Any, faults: Faults) -> list[int] | None:
    integers = [_integer(item, faults) for item in _listed(value)]
    return None if None in integers else integers  # type: ignore[return-value]


_BY_TYPE: dict[str, _Converter] = {
    "string": _text,
    "int": _integer,
    "double": _number,
    "boolean": _flag,
    "string[]": _texts,
    "int[]": _integers,
    "double[]": _numbers,
    "any": _plain,
}
"""Converters by the registry's types."""
_EXACT = {"string": str, "int": int, "double": float, "boolean": bool}
"""Types whose values need no conversion; text and integers are examined."""


def convert(name: str, converter: _Converter, value: Any, faults: Faults) -> Any:
    """Return a converted value; None if it is absent, and with a fault if it can't be converted."""
    if is_absent(value):
        return None
    try:
        result = converter(value, faults)
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        result = None
    if result is None:
        faults.append(f"{name.rstrip('_')}_invalid: {scalar_text(value):.80}")
    return result


def integer(name: str, value: object, faults: Faults) -> int | None:
    """Return an argument as a whole number of 64 bits; None for others, with a fault."""
    return cast("int | None", convert(name, _integer, value, faults))


def flag(name: str, value: object, faults: Faults) -> bool | None:
    """Return an argument as true or false; None if it is absent, and without a truth value, with a fault."""
    return cast("bool | None", convert(name, _flag, value, faults))


def checked_text(error: type[MttpError], name: str, value: object) -> str:
    """Return an argument of set-up as text, empty if it is absent; raises the error if it is none."""
    faults: Faults = []
    as_text = optional_text(name, value, faults)
    if any(fault.startswith(f"{name}_invalid") for fault in faults):
        raise error(f"{name}={scalar_text(value):.80} is no text")
    return as_text


def mapping(name: str, value: object, faults: Faults) -> Mapping[Any, Any]:
    """Return a copy of a mapping; an empty one for None, and for others, with a fault."""
    if value is None or type(value) is dict:
        return {} if value is None else {**value}
    problems: Faults = []
    copied = convert(name, _mapping, value, problems)
    faults.extend(f"{problem} is not a mapping" for problem in problems)
    return copied or {}


def members(name: str, of: type[_V], value: object, faults: Faults) -> tuple[_V, ...]:
    """Return the values of one class in an argument; others are faults."""
    return convert(name, _members(of), value, faults) or ()


def optional_text(name: str, value: object, faults: Faults) -> str:
    """Return an argument as text; empty if it is absent."""
    return convert(name, _text, value, faults) or ""


def encode(keys: Mapping[str, str], source: object, faults: Faults) -> dict[str, Plain]:
    """
    Return attributes in the types of the registry from the fields of a value, or from a dict of arguments.

    `keys` has the attribute for each field. Absent fields have no attribute, nor have empty lists of text.
    """
    attributes: dict[str, Plain] = {}
    member = source.get if type(source) is dict else partial(getattr, source)
    for name in keys:
        if (value := member(name)) is not None:
            _add(attributes, name, keys[name], value, faults)
    return attributes


def _add(attributes: dict[str, Plain], name: str, key: str, value: Any, faults: Faults) -> None:
    """Add the attribute of a value that is not None."""
    exact, converter, is_list = _encoding(key)
    kind = type(value)
    if kind is not exact or (kind is int and value not in INT64):
        if kind is tuple and not value:
            return
        value = convert(name, converter, value, faults)
    elif kind is str and not value.isascii():
        value = text(value, faults)
    if value is not None and (value or not is_list):
        attributes[key] = value


@lru_cache(maxsize=1 << 10)
def _encoding(key: str) -> tuple[type | None, _Converter, bool]:
    """Return the type that needs no conversion, the converter, and whether the attribute is a list."""
    type_ = wanted(key) or "any"
    if key in DOCUMENTS:
        return None, to_json, False
    return _EXACT.get(type_), _BY_TYPE[type_], type_.endswith("[]")


# Fields by the annotations of their classes.


def encode_value(value: Value, faults: Faults) -> dict[str, Plain]:
    """
    Return the attributes of a value's fields.

    Absent fields have no attribute, nor have empty texts, empty lists and false flags that are the default.
    """
    attributes: dict[str, Plain] = {}
    members, rows = _written(cast(Any, type(value)))
    for (name, key, is_never_empty), member in zip(rows, members(value), strict=True):
        if member is not None and (is_never_empty or member):
            _add(attributes, name, key, member, faults)
    return attributes


@lru_cache(maxsize=64)
def _written(kind: Any) -> tuple[attrgetter[tuple[Any, ...]], Sequence[tuple[str, str, bool]]]:
    """Return the getter of the fields; their names, attributes, and whether empty values are written."""
    rows = [
        (field.name, field.attribute, field.default not in _EMPTY or type(field.default) is int)
        for field in table(kind)
        if field.attribute
    ]
    return attrgetter(*(name for name, _, _ in rows)), rows


_EMPTY = ("", (), False)
"""Defaults that are not written; 0 equals False, and is."""


def decode(kind: Any, found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields of a value whose attributes are there, or those of them with these names."""
    return {
        name: value if container is None else container(value)
        for key, (name, container) in _containers(kind, names).items()
        if (value := found.get(key)) is not None
    }


_Container: TypeAlias = "Callable[[Any], Any] | None"


@lru_cache(maxsize=64)
def _containers(kind: Any, names: Sequence[str]) -> dict[str, tuple[str, _Container]]:
    """Return name and container by the attribute of each field that has one, or of those with these names."""
    known = keys(kind, *names)
    return {field.attribute: (field.name, _container(field)) for field in table(kind) if field.name in known}


def _container(field: Field) -> _Container:
    """Return what makes the declared value of an attribute's; None if they are the same."""
    if field.attribute in DOCUMENTS:
        return from_json
    if field.declared.startswith("tuple["):
        return tuple if field.declared.endswith(", ...]") else _pair_of
    return _CONTAINERS.get(field.declared)


def _pair_of(value: Any) -> tuple[Any, ...] | None:
    return tuple(value) if len(value) == 2 else None


_CONTAINERS: dict[str, Callable[[Any], Any]] = {"list[str]": list, "int | str": seed}

OF_SPANS = {"error_type": a.ERROR_TYPE, "faults": a.FAULTS, "omissions": a.OMISSIONS}
"""The attributes of fields that a value has from its span, whatever it is."""
_TEMPLATES = {"metrics": a.METRIC, "metadata": a.METADATA}
_IDENTITY = ("trace_id", "span_id", "start_time", "end_time")


def of_span(
    kind: Any, record: SpanRecord, known: frozenset[str] = frozenset(), prefixes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """
    Return the fields that a value has from its span: of its attributes, ids, times, faults, metrics, ...

    `extra` has the attributes that are neither `known` nor under one of the prefixes.
    """
    containers, identity, names = _of_spans(kind)
    values: dict[str, Any] = {name: getattr(record, name) for name in identity}
    others: dict[str, Any] = {}
    for key, value in record.attributes.items():
        if key in containers:
            if value is not None:
                name, container = containers[key]
                values[name] = value if container is None else container(value)
        elif key not in known:
            others[key] = value
    if "error_message" in names:
        values["error_message"] = record.status_message or None
    for name, prefix in _TEMPLATES.items():
        if name in names:
            values[name] = templates.decode(prefix, others)
    if "extra" in names:
        values["extra"] = templates.unknown(others, known, prefixes)
    return values


@lru_cache(maxsize=64)
def _of_spans(kind: Any) -> tuple[dict[str, tuple[str, _Container]], list[str], frozenset[str]]:
    """Return the containers of all its attributes, the names of its ids and times, and all names."""
    names = frozenset(field.name for field in table(kind))
    containers: dict[str, tuple[str, _Container]] = {
        key: (name, None if name == "error_type" else tuple)
        for name, key in OF_SPANS.items()
        if name in names
    }
    return containers | _containers(kind, ()), [name for name in _IDENTITY if name in names], names


class _FieldRule(NamedTuple):
    name: str
    called: str
    """Its name in faults."""
    default: Any
    is_optional: bool
    kinds: frozenset[type]
    """Types whose values need no conversion."""
    converter: _Converter


def checked(kind: Any, arguments: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the arguments that are fields of a class, in their declared types; absent ones are left out."""
    values = {
        rule.name: convert(rule.called, rule.converter, arguments[rule.name], faults)
        for rule in _rules(kind)[0]
        if rule.name in arguments
    }
    return {name: value for name, value in values.items() if value is not None}


def checked_value(value: _V, faults: Faults) -> _V:
    """Return a value whose fields have the types that its class declares; another field gets its default."""
    changes: dict[str, Any] = {}
    rules, members = _rules(cast(Any, type(value)))
    for (name, called, default, is_optional, kinds, converter), field_value in zip(
        rules, members(value), strict=True
    ):
        if field_value is default or type(field_value) in kinds or (field_value is None and is_optional):
            continue
        if field_value is None:
            faults.append(f"{called}_invalid: None")
        result = convert(called, converter, field_value, faults)
        if result is None:
            result = default() if callable(default) else default
        if result is not field_value:
            changes[name] = result
    return replace(value, **changes) if changes else value


_ELSEWHERE = frozenset(
    {(Episode, "status"), (Episode, "outcome"), (Reward, "value"), (Reward, "status")}
    | {(Step, "index"), (Step, "reward"), (Step, "reward_status")}
    | {(Tokens, name) for name in Tokens.ARRAYS}
)
"""Fields that the recording calls check, such as a reward: an invalid one is an error with its text."""
_CLASSES = {
    each.__name__: each for each in (Agent, Annotation, Call, Episode, Grade, Reward, Spec, Step, Tokens)
}
_MEMBERS = re.compile(r"tuple\[(\w+), \.\.\.\]")


@lru_cache(maxsize=64)
def _rules(kind: Any) -> tuple[Sequence[_FieldRule], attrgetter[tuple[Any, ...]]]:
    """Return the rules of the fields that are checked, and the getter of their values."""
    rows = []
    for field in table(kind):
        fits = None if (kind, field.name) in _ELSEWHERE else _of_type(field.declared)
        if fits is None:
            continue
        rows.append(
            _FieldRule(
                field.name,
                "time" if field.name.endswith("_time") else field.name.rstrip("_"),
                field.default,
                field.is_optional,
                *fits,
            )
        )
    return rows, attrgetter(*(rule.name for rule in rows))


def _of_type(declared: str) -> tuple[frozenset[type], _Converter] | None:
    """Return the types that need no conversion, and the converter; None for a field of any type."""
    if declared in _DECLARED:
        return _DECLARED[declared]
    if declared.startswith("Mapping["):
        return frozenset({dict}), _mapping
    if member := _MEMBERS.fullmatch(declared):
        of = _CLASSES.get(member[1])
        return None if of is None else (frozenset(), _members(of))
    value_class = _CLASSES.get(declared)
    return None if value_class is None else (frozenset({value_class}), partial(_instance, value_class))


def _instance(of: type[Value], value: Any, _: Faults) -> Value | None:
    return value if isinstance(value, of) else None


def _members(of: type[Value]) -> _Converter:
    """Return a converter to a tuple of values of one class; each other member is a fault."""

    def converted(value: Any, faults: Faults) -> tuple[Value, ...]:
        if type(value) is tuple and all(isinstance(member, of) for member in value):
            return value
        members = _listed(value)
        if isinstance(value, str):
            raise TypeError
        others = [member for member in members if not isinstance(member, of)]
        what = f"{of.__name__.lower()}s"
        faults.extend(f"{what}_invalid: {scalar_text(member):.80} is no {of.__name__}" for member in others)
        return tuple(member for member in members if isinstance(member, of))

    return converted


def _mapping(value: Any, _: Faults) -> dict[Any, Any] | None:
    return dict(value.items()) if isinstance(value, Mapping) else None


def _pair(of: _Converter) -> _Converter:
    def converted(value: Any, faults: Faults) -> tuple[Any, Any] | None:
        first, second = (of(item, faults) for item in _listed(value))
        return None if first is None or second is None else (first, second)

    return converted


_DECLARED: dict[str, tuple[frozenset[type], _Converter]] = {
    "str": (frozenset({str}), _text),
    "int": (frozenset(), _integer),
    "float": (frozenset({float}), _number),
    "bool": (frozenset({bool}), _flag),
    "int | str": (frozenset({str, int}), text),
    "tuple[str, ...]": (frozenset(), lambda value, faults: tuple(_texts(value, faults))),
    "list[str]": (frozenset(), _texts),
    "tuple[float, ...]": (frozenset(), lambda value, faults: tuple(_numbers(value, faults) or ())),
    "tuple[int, ...]": (frozenset(), lambda value, faults: tuple(_integers(value, faults) or ())),
    "tuple[float, float]": (frozenset(), _pair(_number)),
    "tuple[int, int]": (frozenset(), _pair(_integer)),
}
