"""
Encodes spans as OTLP JSON lines, as the OTLP file exporter specification requires.

A line is one TracesData; ids are hex, enums integers, 64-bit integers strings, bytes base64.
Parts that are equal for many spans are written once and reused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from pybase64 import b64encode

from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.numbers import Array, as_numbers
from mttp.otlp.span_fields import by_identity, pairs

__all__ = [
    "MAX_LINE_BYTES",
    "SpanText",
    "decimal",
    "encode_records",
    "lines_of",
    "texts",
]

MAX_LINE_BYTES = 1_000_000
"""Maximum size of a line, unless it holds one larger span: collectors split lines at 1 MiB."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_json = msgspec.json.Encoder().encode


def encode_records(records: Iterable[SpanRecord], *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """
    Lines, each ending in a newline, that hold the spans in order, side by side where they share a scope.

    Spans of one trace that come together are on one line where they fit on one.
    """
    return lines_of(_written(records), max_bytes)


class SpanText(NamedTuple):
    """A span as JSON, with what its line depends on."""

    scope: Scope
    trace_id: int | str
    text: bytes


def lines_of(spans: Iterable[SpanText], max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Like `encode_records`, for spans that are JSON."""
    line = _LineBuilder(Scope(), max_bytes)
    for _, group in groupby(spans, key=_trace_of):
        trace = list(group)
        if not line.fits([span.text for span in trace]):
            yield from line.end()
        for scope, _, text in trace:
            if not line.holds(scope):
                yield from line.end()
                line = _LineBuilder(scope, max_bytes)
            yield from line.take(text)
    yield from line.end()


_TOGETHER = 1024
"""Number of spans that are written at once."""


def _written(records: Iterable[SpanRecord]) -> Iterator[SpanText]:
    left = iter(records)
    while some := list(islice(left, _TOGETHER)):
        for record, text in zip(some, texts(some), strict=True):
            yield SpanText(record.scope, record.trace_id, text)


def _trace_of(span: SpanText) -> int | str:
    return span.trace_id


class _LineBuilder:
    """Builds a line of spans of one scope."""

    def __init__(self, scope: Scope, max_bytes: int) -> None:
        self._scope = scope
        self._before, self._after = _frame(scope)
        self._spans: list[bytes] = []
        self._empty = len(self._before) + len(self._after)
        self._size = self._empty
        self._max_bytes = max_bytes

    def holds(self, scope: Scope) -> bool:
        return scope is self._scope or scope == self._scope

    def fits(self, spans: Sequence[bytes]) -> bool:
        return self._size + _side_by_side(spans) <= self._max_bytes

    def take(self, span: bytes) -> Iterator[bytes]:
        """Add a span; return the line before it if that is full."""
        if not self.fits([span]):
            yield from self.end()
        self._spans.append(span)
        self._size += len(span) + 1

    def end(self) -> Iterator[bytes]:
        """Return the line, None if it is empty, and start the next one."""
        if self._spans:
            yield b"".join((self._before, b",".join(self._spans), self._after))
        self._spans, self._size = [], self._empty


def _side_by_side(spans: Sequence[bytes]) -> int:
    """Return the size of the spans on a line."""
    return sum(map(len, spans)) + len(spans)


@by_identity
def _frame(scope: Scope) -> tuple[bytes, bytes]:
    """Return the start and the end of a line with spans of one scope."""
    about = _object(
        name=_named(scope.name), version=_named(scope.version), attributes=_attributes(scope.attributes)
    )
    resource = _object(attributes=_attributes(scope.resource))
    scope_text = b'"scope":%b,' % about if about != b"{}" else b""
    before = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{%b"spans":[' % (resource, scope_text)
    return before, b"]%b}]%b}]}\n" % (_url(scope.schema_url), _url(scope.resource_schema_url))


def _url(schema_url: str) -> bytes:
    return b',"schemaUrl":' + _text(schema_url) if schema_url else b""


# Spans of one shape are written by one template.

_Shape: TypeAlias = tuple[str, int, int, bool, bool, bool, tuple[str, ...], tuple[type, ...]]
"""Name, kind and flags of a span, presence of parent, start and end, and names and types of attributes."""


_Ids: TypeAlias = tuple[int, int, int]
"""Of the trace, the span and the parent; 0 for none."""


def texts(records: Sequence[SpanRecord]) -> list[bytes]:
    """Return each span as JSON; raises ValueError for an id that is not hexadecimal."""
    alike: dict[_Shape, list[int]] = {}
    ids = [
        (int(each.trace_id or "0", 16), int(each.span_id or "0", 16), int(each.parent_id or "0", 16))
        for each in records
    ]
    for place, record in enumerate(records):
        alike.setdefault(_shape(record, has_parent=ids[place][2] != 0), []).append(place)
    found = [b""] * len(records)
    for shape, places in alike.items():
        written = _alike(shape, [records[place] for place in places], [ids[place] for place in places])
        for place, text in zip(places, written, strict=True):
            found[place] = text
    return found


def _shape(record: SpanRecord, *, has_parent: bool) -> _Shape:
    attributes = record.attributes
    has = has_parent, record.start_time != 0, record.end_time != 0
    kinds = tuple(map(type, attributes.values()))
    return (record.name, record.kind, record.flags, *has, tuple(attributes), kinds)


def _alike(shape: _Shape, records: Sequence[SpanRecord], ids: Sequence[_Ids]) -> Iterator[bytes]:
    """Return spans of one shape as JSON."""
    traces, own, parents = zip(*ids, strict=True)
    starts, ends = [each.start_time for each in records], [each.end_time for each in records]
    values = zip(*[each.attributes.values() for each in records], strict=True)
    writers = [_WRITERS.get(kind, _other) for kind in shape[-1]]
    written = [map(write, column) for write, column in zip(writers, values, strict=True)]
    known = [column for column, has in zip((parents, starts, ends), shape[3:6], strict=True) if has]
    columns = zip(traces, own, *known, *written, map(_rest, records), strict=True)
    return map(_template(shape).__mod__, columns)


@lru_cache(maxsize=1 << 10)
def _template(shape: _Shape) -> bytes:
    """Return the template of a shape, with placeholders for the values."""
    name, kind, flags, has_parent, has_start, has_end, keys, _ = shape
    parts = [
        b'{"traceId":"%032x","spanId":"%016x"',
        b',"parentSpanId":"%016x"' if has_parent else b"",
        b',"startTimeUnixNano":"%d"' if has_start else b"",
        b',"endTimeUnixNano":"%d"' if has_end else b"",
        b',"flags":%d' % flags if flags else b"",
        b',"name":' + _literal(_text(name)) if name else b"",
        b',"kind":%d' % kind if kind else b"",
    ]
    heads = [_literal(_head(key)) + b"%b" for key in keys]
    if heads:
        parts.append(b',"attributes":[%b}]' % b"},".join(heads))
    return b"".join(parts) + b"%b}"


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _rest(rest: SpanRecord) -> bytes:
    """Return the status, and the fields that few spans have."""
    dropped = rest.dropped_attributes, rest.dropped_events, rest.dropped_links
    is_rare = rest.events or rest.links or rest.trace_state or dropped != (0, 0, 0)
    if not (is_rare or rest.status_code or rest.status_message):
        return b',"status":{}'
    state = b',"traceState":' + _text(rest.trace_state) if rest.trace_state else b""
    events = [_event(one.name, one.time, one.attributes, one.dropped_attributes) for one in rest.events]
    links = [
        _link(one.trace_id, one.span_id, one.attributes, one.dropped_attributes, one.flags)
        for one in rest.links
    ]
    status = _object(message=_named(rest.status_message), code=_number(rest.status_code))
    return state + _marks(events, links, dropped) + b',"status":' + status


def _marks(events: list[bytes], links: list[bytes], dropped: tuple[int, int, int]) -> bytes:
    text = b',"droppedAttributesCount":%d' % dropped[0] if dropped[0] else b""
    if events:
        text += b',"events":[%b]' % b",".join(events)
    if dropped[1]:
        text += b',"droppedEventsCount":%d' % dropped[1]
    if links:
        text += b',"links":[%b]' % b",".join(links)
    return text + b',"droppedLinksCount":%d' % dropped[2] if dropped[2] else text


def _event(name: str, time: int, attributes: Mapping[str, Any] | None, dropped: int) -> bytes:
    return _object(
        timeUnixNano=b'"%d"' % time if time else b"",
        name=_named(name),
        attributes=_attributes(attributes),
        droppedAttributesCount=_number(dropped),
    )


def _link(
    trace_id: str, span_id: str, attributes: Mapping[str, Any] | None, dropped: int, flags: int
) -> bytes:
    return _object(
        traceId=_named(trace_id),
        spanId=_named(span_id),
        attributes=_attributes(attributes),
        droppedAttributesCount=_number(dropped),
        flags=_number(flags),
    )


def _object(**members: bytes) -> bytes:
    """Return the fields without empty ones: JSON of protobuf omits defaults."""
    return b"{%b}" % b",".join([b'"%b":%b' % (key.encode(), text) for key, text in members.items() if text])


def _number(value: int) -> bytes:
    return b"%d" % value if value else b""


def _named(value: str) -> bytes:
    return _text(value) if value else b""


def _text(value: str) -> bytes:
    if type(value) is not str:  # the text of enums and numpy's str differs
        value = str.__str__(value)
    try:
        return _json(value)
    except UnicodeEncodeError:  # a lone surrogate, from spans that did not pass our recorder
        return _json(value.encode("utf-8", "backslashreplace").decode())


# Attributes.


def _attributes(attributes: Mapping[str, Any] | None) -> bytes:
    found = _listed(pairs(attributes))
    return b"[%b}]" % found if found else b""


def _listed(items: Iterable[tuple[Any, Any]]) -> bytes:
    return b"},".join([_head(key) + _WRITERS.get(type(value), _other)(value) for key, value in items])


@lru_cache(maxsize=1 << 12, typed=True)
def _head(key: object) -> bytes:
    return b'{"key":%b,"value":' % _text(str(key))


def _value(value: Any) -> bytes:
    write = _WRITERS.get(type(value), _other)
    return write(value)


def _string(value: str) -> bytes:
    try:
        return b'{"stringValue":%b}' % _json(value)
    except UnicodeEncodeError:
        return b'{"stringValue":%b}' % _text(value)


def _integer(value: int) -> bytes:
    if _INT64_MIN <= value <= _INT64_MAX:
        return b'{"intValue":"%d"}' % value
    return _string(decimal(value))


def _float(value: float) -> bytes:
    return b'{"doubleValue":%b}' % (_json(value) if math.isfinite(value) else _spelled(value))


def _bytes(value: bytes | bytearray) -> bytes:
    return b'{"bytesValue":"%b"}' % b64encode(value)


def _map(values: Mapping[Any, Any]) -> bytes:
    if set(map(type, values.values())) == _TEXTS:  # such as a message
        with suppress(UnicodeEncodeError):
            return _template_of_texts(tuple(values)) % tuple(map(_json, values.values()))
    listed = _listed(values.items())
    return b'{"kvlistValue":{"values":[%b}]}}' % listed if listed else b'{"kvlistValue":{}}'


_TEXTS = frozenset({str})


@lru_cache(maxsize=1 << 10, typed=True)
def _template_of_texts(names: tuple[object, ...]) -> bytes:
    """Return the template of a mapping with these names, with placeholders for the JSON of its texts."""
    members = b",".join([_literal(_head(name)) + b'{"stringValue":%b}}' for name in names])
    return b'{"kvlistValue":{"values":[%b]}}' % members


def _list(values: Sequence[Any]) -> bytes:
    numbers = as_numbers(values)
    if numbers is not None:
        return _numbers(numbers, values)
    written = b",".join([_value(item) for item in values])
    return b'{"arrayValue":{"values":[%b]}}' % written if written else b'{"arrayValue":{}}'


def _array(array: Array) -> bytes:
    flat = array.ravel()
    listed = flat.tolist()
    kind = flat.dtype.kind
    covered = kind in "bif" or (kind == "u" and listed and max(listed) <= _INT64_MAX)
    return _numbers(flat, listed) if covered and listed else _list(listed)


def _numbers(array: Array, values: Sequence[Any]) -> bytes:
    """Return the items of an array as JSON, joined by what stands around each."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return b'{"arrayValue":{"values":[%b]}}' % b",".join(map(_float, values))
    before, after = _AROUND[array.dtype.kind]
    inner = _json(values)[1:-1].replace(b",", b"%b},{%b" % (after, before))
    return b'{"arrayValue":{"values":[{%b%b%b}]}}' % (before, inner, after)


_AROUND = {
    "f": (b'"doubleValue":', b""),
    "i": (b'"intValue":"', b'"'),
    "u": (b'"intValue":"', b'"'),
    "b": (b'"boolValue":', b""),
}


def _other(value: Any) -> bytes:
    """Return a value of a subclass as its base type, any other value as text."""
    if isinstance(value, str):
        return _string(str.__str__(value))
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, Mapping):
        return _map(value)
    return _list(list(value)) if isinstance(value, Sequence) else _string(str(value))


_WRITERS: Mapping[type, Callable[[Any], bytes]] = {
    str: _string,
    float: _float,
    int: _integer,
    bool: {True: b'{"boolValue":true}', False: b'{"boolValue":false}'}.__getitem__,
    bytes: _bytes,
    bytearray: _bytes,
    type(None): lambda _: b"{}",
    list: _list,
    tuple: _list,
    dict: _map,
    np.ndarray: _array,
}


def decimal(value: int) -> str:
    """Return an integer of any size as text."""
    try:
        return int.__repr__(value)
    except ValueError:  # Python does not print integers of more than about 4,300 digits
        return hex(value)


def _spelled(value: float) -> bytes:
    return b'"NaN"' if value != value else b'"Infinity"' if value > 0 else b'"-Infinity"'
