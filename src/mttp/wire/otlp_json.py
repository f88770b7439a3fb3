"""
Spans to OTLP JSON lines, as the OTLP file rules say.

A line is one TracesData; ids are hex, enums integers, 64-bit integers strings, bytes base64.
Text is put together piece by piece: what is the same from span to span is written once.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from mttp.allocator import keep_freed
from mttp.spans import Scope, SpanRecord
from mttp.wire.numbers import Array, as_numbers
from mttp.wire.readable import Attributes, by_identity, flags, pairs, shown

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Status

__all__ = [
    "MAX_LINE_BYTES",
    "Part",
    "alike",
    "apart",
    "decimal",
    "encode_records",
    "encode_spans",
    "lines",
    "part",
    "shared",
]

MAX_LINE_BYTES = 1_000_000
"""A line stays under this, but for one that holds a single larger span: collectors split lines at 1 MiB."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_json = msgspec.json.Encoder().encode

Part: TypeAlias = tuple[object, Scope, Sequence[bytes]]
"""Spans as a line holds them: what their trace is known by, their scope, and their texts."""


def encode_records(records: Iterable[SpanRecord], *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """
    Lines, each ending in a newline, that hold the spans in order, side by side where they share a scope.

    Spans of one trace that come together are on one line where they fit on one.
    """
    return lines(map(part, records), max_bytes)


def encode_spans(
    spans: Iterable[ReadableSpan], attributes: Attributes = shown, *, max_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    """
    Likewise, without a record of each span in between.

    Raises ValueError for a span that has no context.
    """
    return lines((_readable(span, attributes(span)) for span in spans), max_bytes)


def lines(spans: Iterable[Part], max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Likewise, of spans that are written already."""
    keep_freed()
    line = _Line(Scope(), max_bytes)
    for _, group in groupby(spans, key=itemgetter(0)):
        trace = list(group)
        if not line.fits([text for _, _, texts in trace for text in texts]):
            yield from line.end()
        for _, scope, texts in trace:
            if not line.holds(scope):
                yield from line.end()
                line = _Line(scope, max_bytes)
            yield from line.take(texts)
    yield from line.end()


class _Line:
    """A line in the making: spans of one scope."""

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

    def take(self, spans: Sequence[bytes]) -> Iterator[bytes]:
        """Take them in; the lines that are full."""
        if len(spans) > 1 and not self.fits(spans):
            for one in spans:
                yield from self.take([one])
            return
        if not self.fits(spans):
            yield from self.end()
        self._spans += spans
        self._size += _side_by_side(spans)

    def end(self) -> Iterator[bytes]:
        """The line, unless it is empty; the next one begins."""
        if self._spans:
            yield b"".join((self._before, b",".join(self._spans), self._after))
        self._spans, self._size = [], self._empty


def _side_by_side(spans: Sequence[bytes]) -> int:
    """The bytes that they take on a line."""
    return sum(map(len, spans)) + len(spans)


@by_identity
def _frame(scope: Scope) -> tuple[bytes, bytes]:
    """What stands around the spans of one scope: a line's beginning and its end."""
    about = _object(
        name=_named(scope.name), version=_named(scope.version), attributes=_attributes(scope.attributes)
    )
    resource = _object(attributes=_attributes(scope.resource))
    scope_text = b'"scope":%b,' % about if about != b"{}" else b""
    before = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{%b"spans":[' % (resource, scope_text)
    return before, b"]%b}]%b}]}\n" % (_url(scope.schema_url), _url(scope.resource_schema_url))


def _url(schema_url: str) -> bytes:
    return b',"schemaUrl":' + _text(schema_url) if schema_url else b""


@by_identity
def _scope(resource: Resource, scope: InstrumentationScope | None) -> Scope:
    made = Scope(resource=dict(resource.attributes), resource_schema_url=resource.schema_url)
    if scope is None:
        return made
    return replace(
        made,
        name=scope.name,
        version=scope.version or "",
        schema_url=scope.schema_url or "",
        attributes=dict(scope.attributes or {}),
    )


# Spans: the same four parts, of a record and of what the SDK hands over.


def part(span: SpanRecord) -> Part:
    """A record, written."""
    text = b"".join(
        (
            _ids(span.trace_id, span.span_id, span.trace_state, span.parent_id, span.flags),
            _life(span.name, span.kind, span.start_time, span.end_time),
            _contents(
                _attributes(span.attributes),
                span.dropped_attributes,
                [_event(one.name, one.time, one.attributes, one.dropped_attributes) for one in span.events],
                span.dropped_events,
                [
                    _link(one.trace_id, one.span_id, one.attributes, one.dropped_attributes, one.flags)
                    for one in span.links
                ],
                span.dropped_links,
            ),
            _status(span.status_message, span.status_code),
        )
    )
    return span.trace_id, span.scope, (text,)


def _readable(span: ReadableSpan, attributes: Mapping[str, Any] | None) -> Part:
    context, parent = span.get_span_context(), span.parent
    if context is None:
        raise ValueError(f"span {span.name!r} has no context")
    trace_id, span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    state = context.trace_state.to_header() if context.trace_state else ""
    parent_id = "" if parent is None else f"{parent.span_id:016x}"
    whole = (
        _ids(trace_id, span_id, state, parent_id, flags(parent)),
        _life(span.name, span.kind.value + 1, span.start_time, span.end_time),
        _contents(
            _attributes(attributes),
            span.dropped_attributes,
            [_event(one.name, one.timestamp, one.attributes, one.dropped_attributes) for one in span.events],
            span.dropped_events,
            [
                _link(
                    f"{one.context.trace_id:032x}",
                    f"{one.context.span_id:016x}",
                    one.attributes,
                    one.dropped_attributes,
                    flags(one.context),
                )
                for one in span.links
            ],
            span.dropped_links,
        ),
        _outcome(span.status),
    )
    return context.trace_id, _scope(span.resource, span.instrumentation_scope), (b"".join(whole),)


def _ids(trace_id: str, span_id: str, state: str, parent_id: str, flags: int) -> bytes:
    text = f'{{"traceId":"{trace_id}","spanId":"{span_id}"'.encode()
    if state:
        text += b',"traceState":' + _text(state)
    if parent_id:
        text += b',"parentSpanId":"%b"' % parent_id.encode()
    return text + b',"flags":%d' % flags if flags else text


def _life(name: str, kind: int, start: int | None, end: int | None) -> bytes:
    text = b',"name":' + _text(name) if name else b""
    if kind:
        text += b',"kind":%d' % kind
    if start:
        text += b',"startTimeUnixNano":"%d"' % start
    return text + b',"endTimeUnixNano":"%d"' % end if end else text


def _contents(
    attributes: bytes,
    dropped_attributes: int,
    events: list[bytes],
    dropped_events: int,
    links: list[bytes],
    dropped_links: int,
) -> bytes:
    text = b',"attributes":' + attributes if attributes else b""
    if dropped_attributes:
        text += b',"droppedAttributesCount":%d' % dropped_attributes
    if events:
        text += b',"events":[%b]' % b",".join(events)
    if dropped_events:
        text += b',"droppedEventsCount":%d' % dropped_events
    if links:
        text += b',"links":[%b]' % b",".join(links)
    return text + b',"droppedLinksCount":%d' % dropped_links if dropped_links else text


def _outcome(status: Status | None) -> bytes:
    return _status("", 0) if status is None else _status(status.description or "", status.status_code.value)


def _status(message: str, code: int) -> bytes:
    if not message and not code:
        return b',"status":{}}'
    return b',"status":%b}' % _object(message=_named(message), code=_number(code))


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
    """Without what is empty: protobuf's JSON leaves defaults out."""
    return b"{%b}" % b",".join([b'"%b":%b' % (key.encode(), text) for key, text in members.items() if text])


def _number(value: int) -> bytes:
    return b"%d" % value if value else b""


def _named(value: str) -> bytes:
    return _text(value) if value else b""


def _text(value: str) -> bytes:
    plain = str.__str__(value)  # a class of its own, as an enum's or numpy's, may print as something else
    try:
        return _json(plain)
    except UnicodeEncodeError:  # a lone surrogate, from spans that did not pass our recorder
        return _json(plain.encode("utf-8", "backslashreplace").decode())


# Spans that differ in little.


_NO_ID = b'"spanId":""'
_ALIKE = b'%b"spanId":"%016x"%b,"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[%b},'


def shared(span: SpanRecord) -> tuple[bytes, bytes, bytes]:
    """
    What spans share with this one, as `alike` takes it: all but ids and times and what else they say.

    It says something itself, and has no events, links or status.
    """
    before, after = _ids(span.trace_id, "", span.trace_state, span.parent_id, span.flags).split(_NO_ID)
    return before, after + _life(span.name, span.kind, 0, 0), _listed(pairs(span.attributes))


def apart(
    span: SpanRecord, trace_ids: Sequence[int], parent_ids: Sequence[int] | None
) -> tuple[list[bytes], list[bytes], bytes]:
    """
    Likewise what spans share with this one that each belong to another trace.

    They have these parents, or none.
    """
    before, after = _ids("%032x", "", "", "%016x" if parent_ids else "", span.flags).split(_NO_ID)
    after += _literal(_life(span.name, span.kind, 0, 0))
    befores = list(map(before.__mod__, trace_ids))
    afters = list(map(after.__mod__, parent_ids)) if parent_ids else [after % ()] * len(befores)
    return befores, afters, _listed(pairs(span.attributes))


def alike(said: tuple[tuple[str, Any], ...], columns: Sequence[Sequence[Any]]) -> list[bytes]:
    """
    Spans that say the same, but for the values in place of which a type stands.

    The columns are the parts of what they share with others, their ids, starts and ends, and those values.
    """
    before, after, about, ids, starts, ends, *values = columns
    kinds = [value for _, value in said if type(value) is type]
    written = [map(_WRITERS[kind], column) for kind, column in zip(kinds, values, strict=True)]
    rows = zip(before, ids, after, starts, ends, about, *written, strict=True)
    return list(map((_ALIKE + _template(said)).__mod__, rows))


@lru_cache(maxsize=1 << 10)
def _template(said: tuple[tuple[str, Any], ...]) -> bytes:
    """These attributes, and how a span ends."""
    texts = [
        _literal(_head(key)) + (b"%b" if type(value) is type else _literal(_value(value)))
        for key, value in said
    ]
    return b"},".join(texts) + b'}],"status":{}}'


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


# Attributes.


def _attributes(attributes: Mapping[str, Any] | None) -> bytes:
    found = _listed(pairs(attributes))
    return b"[%b}]" % found if found else b""


def _listed(said: Iterable[tuple[Any, Any]]) -> bytes:
    return b"},".join([_head(str(key)) + _value(value) for key, value in said])


@lru_cache(maxsize=1 << 12)
def _head(key: str) -> bytes:
    return b'{"key":%b,"value":' % _text(key)


def _value(value: Any) -> bytes:
    write = _WRITERS.get(type(value), _other)
    return write(value)


def _string(value: str) -> bytes:
    return b'{"stringValue":%b}' % _text(value)


def _integer(value: int) -> bytes:
    if _INT64_MIN <= value <= _INT64_MAX:
        return b'{"intValue":"%d"}' % value
    return _string(decimal(value))


def _float(value: float) -> bytes:
    return b'{"doubleValue":%b}' % (_json(value) if math.isfinite(value) else _spelled(value))


def _bytes(value: bytes | bytearray) -> bytes:
    return b'{"bytesValue":"%b"}' % binascii.b2a_base64(value, newline=False)


def _map(values: Mapping[Any, Any]) -> bytes:
    return b'{"kvlistValue":%b}' % _object(values=_attributes(values))


def _list(values: Sequence[Any]) -> bytes:
    numbers = as_numbers(values)
    if numbers is not None:
        return _numbers(numbers, values)
    return b'{"arrayValue":%b}' % _object(values=_items([_value(item) for item in values]))


def _items(written: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(written) if written else b""


def _array(array: Array) -> bytes:
    flat = array.ravel()
    listed = flat.tolist()
    kind = flat.dtype.kind
    covered = kind in "bif" or (kind == "u" and listed and max(listed) <= _INT64_MAX)
    return _numbers(flat, listed) if covered and listed else _list(listed)


def _numbers(array: Array, values: Sequence[Any]) -> bytes:
    """The items written as one list, with what belongs around each put between them."""
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
    """A value of a class of its own as what it is at heart, any other as text."""
    if isinstance(value, str):
        return _string(value)
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
    """An integer as text, of any size."""
    try:
        return int.__repr__(value)
    except ValueError:  # Python refuses to print integers of more than some 4,300 digits
        return hex(value)


def _spelled(value: float) -> bytes:
    return b'"NaN"' if value != value else b'"Infinity"' if value > 0 else b'"-Infinity"'
