"""
Ended spans as rows: plain tuples that can be sent to the encoding process.

This module imports nothing of OpenTelemetry, which would take a third of the start of that process.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from mttp.codec import pending
from mttp.codec.profiles import Profile, full, packed
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.otlp import json as otlp_json
from mttp.otlp.json import SpanRow
from mttp.otlp.protobuf import encode_span

__all__ = ["FORMAT", "Row", "lines", "messages", "pack", "unpack"]

FORMAT: Final = 2
"""Version of marshal's format without references to repeated objects, which take too long to find."""

Row: TypeAlias = tuple[Any, ...]
"""
Scope, trace, span and parent id (numbers; 0 is none), name, kind, start, end, flags, attributes, what
is pending of these, and an `otlp_json.RareFields`; the last two are None for most.
"""
_ATTRIBUTES = 9


def lines(rows: Sequence[Row]) -> bytes:
    """Encode rows as OTLP JSON lines, arrays packed."""
    return b"".join(otlp_json.lines(_delivered(rows, packed)))


def messages(rows: Sequence[Row]) -> list[bytes]:
    """Encode each row as an OTLP protobuf message."""
    return [encode_span(_record(row)) for row in _delivered(rows, full)]


def _delivered(rows: Sequence[Row], profile: Profile) -> list[SpanRow]:
    attributes = pending.delivered([row[_ATTRIBUTES:-1] for row in rows], profile)
    return [
        SpanRow._make((*row[:_ATTRIBUTES], values, row[-1]))
        for row, values in zip(rows, attributes, strict=True)
    ]


def _record(row: SpanRow) -> SpanRecord:
    known: dict[str, Any] = {}
    if row.rest is not None:
        known = row.rest._asdict()
    return SpanRecord(
        trace_id=f"{row.trace_id:032x}",
        span_id=f"{row.span_id:016x}",
        parent_id=f"{row.parent_id:016x}" if row.parent_id else "",
        name=row.name,
        kind=row.kind,
        start_time=row.start_time,
        end_time=row.end_time,
        attributes=row.attributes,
        flags=row.flags,
        scope=row.scope,
        **known,
    )


# Between processes.


def pack(rows: Iterable[Row]) -> bytes:
    """Serialize rows; raises ValueError for values that would change their type."""
    scopes: dict[int, tuple[int, Scope]] = {}
    found = []
    for scope, *outline, attributes, later, rest in rows:
        place, _ = scopes.setdefault(id(scope), (len(scopes), scope))
        odd, plain = _split(attributes)
        rare = None if rest is None else _rare_fields(rest)
        found.append((place, *outline, plain, odd, later, rare))
    return marshal.dumps(([_parts(scope) for _, scope in scopes.values()], found), FORMAT)


def unpack(data: bytes) -> list[Row]:
    """Deserialize rows."""
    scopes, packed_rows = marshal.loads(data)
    known = [Scope(*parts) for parts in scopes]
    found = []
    for place, *outline, attributes, odd, later, rare in packed_rows:
        for key in odd:
            attributes[key] = _made(attributes[key])
        rest = None if rare is None else _rest(*rare)
        found.append((known[place], *outline, attributes, later, rest))
    return found


def _parts(scope: Scope) -> Row:
    return (
        scope.name,
        scope.version,
        scope.schema_url,
        dict(scope.resource),
        dict(scope.attributes),
        scope.resource_schema_url,
    )


def _rare_fields(rest: otlp_json.RareFields) -> Row:
    events = [
        (one.name, one.time, _safe(dict(one.attributes)), one.dropped_attributes) for one in rest.events
    ]
    links = [
        (one.trace_id, one.span_id, _safe(dict(one.attributes)), one.flags, one.dropped_attributes)
        for one in rest.links
    ]
    return events, links, *rest[2:]


def _rest(events: Sequence[Row], links: Sequence[Row], *others: Any) -> otlp_json.RareFields:
    return otlp_json.RareFields(
        [SpanEvent(*event) for event in events], [Link(*link) for link in links], *others
    )


def _split(attributes: Mapping[str, Any]) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Return the names of array attributes, and all attributes with arrays as plain parts."""
    kinds = set(map(type, attributes.values()))
    if kinds <= _EXACT:
        return (), attributes if type(attributes) is dict else dict(attributes)
    odd = [key for key, value in attributes.items() if type(value) is np.ndarray]
    made = {key: _made_of(attributes[key]) for key in odd}
    return odd, _safe({**attributes, **made})


def _made_of(array: Any) -> Row:
    """Return the plain parts of an array."""
    return array.dtype.str, array.shape, array.tobytes()


def _made(parts: Row) -> Any:
    """Return the array of plain parts."""
    dtype, shape, elements = parts
    return np.frombuffer(elements, dtype).reshape(shape)


_EXACT = frozenset({str, float, int, bool, bytes, type(None)})
_MEMBERS = frozenset({dict, list, tuple})


def _safe(value: Any) -> Any:
    """Return the value; raises ValueError if it would change its type, like numpy's numbers."""
    kind = type(value)
    if kind in _MEMBERS:
        for item in value.values() if kind is dict else value:
            if type(item) not in _EXACT:
                _safe(item)
    elif kind not in _EXACT:
        raise ValueError(f"a {kind.__name__} can't travel")
    return value
