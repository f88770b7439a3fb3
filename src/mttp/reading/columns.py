"""
Converts spans to columns and back.

An attribute of the convention is a column of its name and type. Everything else (other attributes, values of
another type, events, links, scope, resource) is OTLP JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from mttp.model.spans import Draft, Scope, SpanRecord, frozen
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import decode_attributes, decode_line
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES

__all__ = ["JSON", "SPAN", "URLS", "from_columns", "to_columns"]

SPAN: dict[str, str] = {
    "trace_id": "string",
    "span_id": "string",
    "parent_id": "string",
    "name": "string",
    "kind": "int",
    "start_time": "time",
    "end_time": "time",
    "status_code": "int",
    "status_message": "string",
    "trace_state": "string",
    "flags": "int",
}
"""Types of the columns that every span has, by name; the names are those of a span record's fields."""

_OF_SPANS = ("attributes", "events", "links")
_OF_SCOPES = ("scope", "resource")
JSON = (*_OF_SPANS, *_OF_SCOPES)
"""Columns of OTLP JSON, for everything without a column of its own."""

URLS = ("schema_url", "resource_schema_url")
"""Columns of the schema URLs of scope and resource."""

_NO_ATTRIBUTES = frozenset({*SPAN, *JSON, *URLS})
"""Columns that are not attributes."""

_INT64 = range(-(2**63), 2**63)


def to_columns(records: Sequence[SpanRecord]) -> dict[str, list[Any]]:
    """The spans as columns, without columns that have no value."""
    columns = {name: [getattr(record, name) for record in records] for name in SPAN}
    scopes: dict[int, dict[str, str]] = {}
    for row, record in enumerate(records):
        if id(record.scope) not in scopes:
            scopes[id(record.scope)] = _scope_cells(record.scope)
        for name, value in chain(_cells(record), scopes[id(record.scope)].items()):
            if name not in columns:
                columns[name] = [None] * len(records)
            columns[name][row] = value
    return columns


def _cells(record: SpanRecord) -> Iterator[tuple[str, Any]]:
    rest: dict[str, Any] = {}
    maps: dict[str, list[tuple[str, Any]]] = {}
    for key, value in record.attributes.items():
        prefix, _, name = key.rpartition(".")
        if key in ATTRIBUTES and _FITS[ATTRIBUTES[key]](value):
            yield key, value
        elif prefix in TEMPLATES and _FITS[TEMPLATES[prefix]](value):
            maps.setdefault(prefix, []).append((name, value))
        else:
            rest[key] = value
    yield from maps.items()
    if rest or record.events or record.links:
        parts = _parts(replace(record, attributes=rest))
        yield from ((name, parts[name]) for name in _OF_SPANS if name in parts)


def _scope_cells(scope: Scope) -> dict[str, str]:
    parts = _parts(SpanRecord(trace_id="", span_id="", name="", scope=scope))
    return parts | {name: url for name in URLS if (url := getattr(scope, name))}


def from_columns(
    columns: Mapping[str, Sequence[Any]], *, arrays: bool = True, maps: Container[str] = TEMPLATES
) -> Iterator[SpanRecord]:
    """
    The spans from the result of `to_columns`, which may have columns of attributes of later versions.

    Columns in `maps` are maps; without `arrays`, arrays are left out.
    """
    count = len(columns["trace_id"])
    attributes: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in columns.items():
        if key in maps:
            for row, items in enumerate(values):
                attributes[row].update((f"{key}.{name}", value) for name, value in items or ())
        elif key not in _NO_ATTRIBUTES:
            for row, value in enumerate(values):
                if value is not None:
                    attributes[row][key] = value
    spans = [columns[name] for name in SPAN]
    rests = [columns.get(name) or [None] * count for name in _OF_SPANS]
    scopes = [columns.get(name) or [None] * count for name in (*_OF_SCOPES, *URLS)]
    for row in range(count):
        rest = tuple(column[row] for column in rests)
        more = _parsed(*rest, arrays=arrays) if any(rest) else _EMPTY_SPAN
        yield frozen(
            Draft(
                **{name: column[row] for name, column in zip(SPAN, spans, strict=True)},
                attributes={**attributes[row], **more.attributes},
                events=more.events,
                links=more.links,
                scope=_scope(*(column[row] for column in scopes)),
            )
        )


_EMPTY_SPAN = SpanRecord(trace_id="", span_id="", name="")
_DUMMY_SPAN = f'"traceId":"{"1" * 32}","spanId":"{"1" * 16}"'


def _parsed(attributes: str | None, events: str | None, links: str | None, *, arrays: bool) -> SpanRecord:
    """A span that has only these parts, decoded from OTLP JSON."""
    if attributes is not None and events is None and links is None:
        values = decode_attributes(attributes, arrays=arrays)
        return frozen(Draft(trace_id="", span_id="", name="", attributes=values))
    parts = f'"attributes":{attributes or "[]"},"events":{events or "[]"},"links":{links or "[]"}'
    return _read(f'"spans":[{{{_DUMMY_SPAN},{parts}}}]', arrays=arrays)


@lru_cache(maxsize=256)
def _scope(
    scope: str | None, resource: str | None, schema_url: str | None, resource_url: str | None
) -> Scope:
    """The scope, as one object for all of its spans."""
    span = f'"spans":[{{{_DUMMY_SPAN}}}]'
    parsed = _read(f'"scope":{scope or "{}"},{span}', before=f'"resource":{resource or "{}"},').scope
    return replace(parsed, schema_url=schema_url or "", resource_schema_url=resource_url or "")


def _read(block: str, *, before: str = "", arrays: bool = True) -> SpanRecord:
    line = f'{{"resourceSpans":[{{{before}"scopeSpans":[{{{block}}}]}}]}}'
    return decode_line(line.encode(), arrays=arrays)[0]


_Fits = Callable[[Any], bool]


def _all(fits: _Fits) -> _Fits:
    return lambda value: type(value) is list and all(map(fits, value))


_FITS: dict[str, _Fits] = {
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "double": lambda value: type(value) is float,
    "int": lambda value: type(value) is int and value in _INT64,
    "bytes": lambda value: type(value) is bytes,
}
_FITS |= {f"{type_}[]": _all(fits) for type_, fits in _FITS.items()}


class _Span(msgspec.Struct, rename="camel"):
    attributes: msgspec.Raw = msgspec.Raw()
    events: msgspec.Raw = msgspec.Raw()
    links: msgspec.Raw = msgspec.Raw()


class _Block(msgspec.Struct, rename="camel"):
    spans: list[_Span]
    scope: msgspec.Raw = msgspec.Raw()


class _Resource(msgspec.Struct, rename="camel"):
    scope_spans: list[_Block]
    resource: msgspec.Raw = msgspec.Raw()


class _LineColumns(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource]


def _parts(record: SpanRecord) -> dict[str, str]:
    """The non-empty parts of a record in OTLP JSON."""
    (line,) = encode_records([record])
    whole = msgspec.json.decode(line, type=_LineColumns).resource_spans[0]
    block = whole.scope_spans[0]
    span = block.spans[0]
    raw = (span.attributes, span.events, span.links, block.scope, whole.resource)
    named = ((name, bytes(part).decode()) for name, part in zip(JSON, raw, strict=True))
    return {name: part for name, part in named if part not in ("", "[]", "{}")}
