"""
Encodes spans as OTLP JSON lines, as the OTLP file exporter specification requires.

A line is one TracesData; ids are hex, enums integers, 64-bit integers strings, bytes base64.
Parts that are equal for many spans are written once and reused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from pybase64 import b64encode

from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.numbers import Array, as_numbers
from mttp.otlp.span_fields import by_identity, pairs

__all__ = [
    "MAX_LINE_BYTES",
    "NOTHING_RARE",
    "Fields",
    "SpanText",
    "decimal",
    "encode_records",
    "fields_of",
    "lines_of",
    "text",
]

MAX_LINE_BYTES = 1_000_000
"""Maximum size of a line, unless it holds one larger span: collectors split lines at 1 MiB."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_json = msgspec.json.Encoder().encode


Fields: TypeAlias = tuple[Any, ...]
"""
Span and parent id (numbers; 0 is none), name, kind, start, end, flags, attributes, and what few spans have.

These are events, links, status code and message, trace state and numbers of dropped items, or None.
"""
NOTHING_RARE: Final[Fields] = ((), (), 0, "", "", 0, 0, 0)
"""What few spans have, of a span without it."""
SpanText: TypeAlias = tuple[Scope, object, bytes]
"""The scope of a span, its trace id, and the span as JSON."""


def fields_of(record: SpanRecord) -> Fields:
    """Return the fields of a record; raises ValueError for an id that is not hexadecimal."""
    events = [(each.name, each.time, each.attributes, each.dropped_attributes) for each in record.events]
    links = [
        (each.trace_id, each.span_id, each.attributes, each.flags, each.dropped_attributes)
        for each in record.links
    ]
    status, dropped = (
        (record.status_code, record.status_message, record.trace_state),
        (
            record.dropped_attributes,
            record.dropped_events,
            record.dropped_links,
        ),
    )
    is_rare = events or links or any(status) or any(dropped)
    return (
        int(record.span_id or "0", 16),
        int(record.parent_id or "0", 16),
        record.name,
        record.kind,
        record.start_time,
        record.end_time,
        record.flags,
        record.attributes,
        (events, links, *status, *dropped) if is_rare else None,
    )


def encode_records(records: Iterable[SpanRecord], *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """
    Lines, each ending in a newline, that hold the spans in order, side by side where they share a scope.

    Spans of one trace that come together are on one line where they fit on one.
    """
    return lines_of(map(_of_record, records), max_bytes)


def _of_record(record: SpanRecord) -> SpanText:
    return record.scope, record.trace_id, text(int(record.trace_id or "0", 16), fields_of(record))


def lines_of(spans: Iterable[SpanText], max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Like `encode_records`, for spans that are JSON."""
    scope = Scope()
    before, after = _frame(scope)
    texts: list[bytes] = []
    size = empty = len(before) + len(after)
    for _, group in groupby(spans, key=itemgetter(1)):
        trace = list(group)
        must_end = size + sum([len(span) + 1 for _, _, span in trace]) > max_bytes
        for its_scope, _, span in trace:
            is_other = its_scope is not scope and its_scope != scope
            if must_end or is_other or size + len(span) + 1 > max_bytes:
                must_end = False
                if texts:
                    yield b"".join((before, b",".join(texts), after))
                    texts, size = [], empty
                if is_other:
                    scope = its_scope
                    before, after = _frame(scope)
                    size = empty = len(before) + len(after)
            texts.append(span)
            size += len(span) + 1
    if texts:
        yield b"".join((before, b",".join(texts), after))


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

_Shape: TypeAlias = tuple[Any, ...]
"""
Name, kind and flags of a span, presence of parent, start, end and rare fields, and its number of attributes.

Then the names of the attributes, and the types of their values.
"""


def text(trace_id: int, fields: Fields) -> bytes:
    """Return a span as JSON."""
    span_id, parent_id, name, kind, start, end, flags, attributes, rare = fields
    has = parent_id != 0, start != 0, end != 0, rare is not None
    values = attributes.values()
    shape = (name, kind, flags, *has, len(attributes), *attributes, *map(type, values))
    template, writers = _template(shape)
    known = [each for each in (parent_id, start, end) if each]
    try:
        written = [write(value) for write, value in zip(writers, values, strict=True)]
    except UnicodeEncodeError:
        written = [_TOLERANT.get(write, write)(value) for write, value in zip(writers, values, strict=True)]
    rest = () if rare is None else (_rest(*rare),)
    return template % (trace_id, span_id, *known, *written, *rest)


@lru_cache(maxsize=1 << 10)
def _template(shape: _Shape) -> tuple[bytes, Sequence[Callable[[Any], bytes]]]:
    """Return the template of a shape, with placeholders for the values, and what writes attributes."""
    name, kind, flags, has_parent, has_start, has_end, is_rare, count, *keys = shape
    kinds = [_FORMS.get(each, (b"%b", _value)) for each in keys[count:]]
    heads = [_literal(_head(key)) + form for key, (form, _) in zip(keys[:count], kinds, strict=True)]
    parts = [
        b'{"traceId":"%032x","spanId":"%016x"',
        b',"parentSpanId":"%016x"' if has_parent else b"",
        b',"startTimeUnixNano":"%d"' if has_start else b"",
        b',"endTimeUnixNano":"%d"' if has_end else b"",
        b',"flags":%d' % flags if flags else b"",
        b',"name":' + _literal(_text(name)) if name else b"",
        b',"kind":%d' % kind if kind else b"",
        b',"attributes":[%b}]' % b"},".join(heads) if heads else b"",
        b"%b}" if is_rare else b',"status":{}}',
    ]
    return b"".join(parts), [write for _, write in kinds]


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _rest(
    events: Iterable[Any], links: Iterable[Any], code: int, message: str, trace_state: str, *dropped: int
) -> bytes:
    """Return the status, and the fields that few spans have."""
    state = b',"traceState":' + _text(trace_state) if trace_state else b""
    marks = _marks([_event(*each) for each in events], [_link(*each) for each in links], dropped)
    return state + marks + b',"status":' + _object(message=_named(message), code=_number(code))


def _marks(events: list[bytes], links: list[bytes], dropped: Sequence[int]) -> bytes:
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
    trace_id: str, span_id: str, attributes: Mapping[str, Any] | None, flags: int, dropped: int
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
    items = _listed(pairs(attributes))
    return b"[%b}]" % items if items else b""


def _listed(items: Iterable[tuple[Any, Any]]) -> bytes:
    return b"},".join([_head(key) + _value(value) for key, value in items])


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
    listed = _listed(values.items())
    return b'{"kvlistValue":{"values":[%b}]}}' % listed if listed else b'{"kvlistValue":{}}'


def _list(values: Sequence[Any]) -> bytes:
    numbers = as_numbers(values)
    if numbers is not None:
        return _numbers(numbers, values)
    if set(map(type, values)) == _MAPPINGS and (messages := _messages(values)):
        return messages
    written = b",".join([_value(item) for item in values])
    return b'{"arrayValue":{"values":[%b]}}' % written if written else b'{"arrayValue":{}}'


_MAPPINGS, _TEXTS = frozenset({dict}), frozenset({str})


def _messages(values: Sequence[Mapping[Any, Any]]) -> bytes:
    """Return mappings of texts, such as the messages of a chat; nothing for others."""
    texts = [text for each in values for text in each.values()]
    if set(map(type, texts)) != _TEXTS:
        return b""
    try:
        return _template_of_messages(tuple(map(tuple, values))) % tuple(map(_json, texts))
    except UnicodeEncodeError:
        return b""


@lru_cache(maxsize=1 << 10)
def _template_of_messages(messages: Sequence[Sequence[object]]) -> bytes:
    """Return the template of mappings with these names, with placeholders for the JSON of their texts."""
    texts = [
        b",".join([_literal(_head(name)) + b'{"stringValue":%b}}' for name in names]) for names in messages
    ]
    mappings = [
        b'{"kvlistValue":{"values":[%b]}}' % each if each else b'{"kvlistValue":{}}' for each in texts
    ]
    return b'{"arrayValue":{"values":[%b]}}' % b",".join(mappings)


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


_FORMS: Mapping[type, tuple[bytes, Callable[[Any], bytes]]] = {
    **{kind: (b"%b", write) for kind, write in _WRITERS.items()},
    str: (b'{"stringValue":%b}', _json),
    bytes: (b'{"bytesValue":"%b"}', b64encode),
}
"""Of frequent types, the text around an attribute's value, and what writes it."""
_TOLERANT: Mapping[Any, Callable[[Any], bytes]] = {_json: _text}
"""What writes text with lone surrogates."""


def decimal(value: int) -> str:
    """Return an integer of any size as text."""
    try:
        return int.__repr__(value)
    except ValueError:  # Python does not print integers of more than about 4,300 digits
        return hex(value)


def _spelled(value: float) -> bytes:
    return b'"NaN"' if value != value else b'"Infinity"' if value > 0 else b'"-Infinity"'
