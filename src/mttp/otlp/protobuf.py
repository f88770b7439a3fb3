"""
Encodes spans as OTLP protobuf, with the same bytes as the official encoder in a fraction of its time.

Spans of any library are encoded as requests; attributes of unusual types, or with text that UTF-8 can't
encode, are passed to the official encoder.
Records are encoded one by one, so that the size of each is known; values without an OTLP type become text.
Numpy arrays are encoded as lists, and None as an empty value, like the official encoder after 1.38.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.model.interrupts import raise_interrupt
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.json import NOTHING_RARE, Fields, decimal, fields_of
from mttp.otlp.numbers import Array, as_numbers
from mttp.otlp.protobuf_fields import field, items, varint
from mttp.otlp.span_fields import Attributes, by_identity, flags, pairs, shown

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext

__all__ = [
    "Block",
    "encode_fields",
    "encode_readable",
    "encode_request",
    "encode_span",
    "encode_spans",
    "frame_bytes",
    "span_bytes",
]

Block: TypeAlias = tuple[Scope, Sequence[bytes]]
"""A scope with encoded spans."""

_FRAME_TAGS = 32
"""Upper bound of the bytes of tags and lengths around the spans of one scope."""
_SPAN_TAG = 6
"""Upper bound of the bytes of tag and length around one span."""
_INT64 = range(-(2**63), 2**63)

_double = partial(struct.Struct("<Bd").pack, 0x21)
_fixed32 = struct.Struct("<I").pack
_fixed64 = struct.Struct("<Q").pack

_Rest: TypeAlias = Callable[[bytes, Any, Any], bytes]
"""Encodes attributes that this module does not."""
_Frame: TypeAlias = tuple[bytes, bytes]
"""Bytes before and after the content of a block of a resource or a scope."""


# Requests with spans of any library.


def encode_spans(spans: Iterable[ReadableSpan], attributes: Attributes = shown) -> bytes:
    """
    An ExportTraceServiceRequest of the spans, or what is the same, a TracesData.

    Raises what the official encoder raises where a time, a count or an id is impossible.
    """
    blocks: dict[Resource, dict[InstrumentationScope | None, list[bytes]]] = {}

    @by_identity
    def block(resource: Resource, scope: InstrumentationScope | None) -> list[bytes]:
        return blocks.setdefault(resource, {}).setdefault(scope, [])

    for span in spans:
        encoded = encode_readable(span, attributes)
        block(span.resource, span.instrumentation_scope).append(encoded)
    parts: list[bytes] = []
    for resource, scopes in blocks.items():
        inner: list[bytes] = []
        for scope, encoded_spans in scopes.items():
            inner += _framed(b"\x12", _scope(scope), _span_fields(encoded_spans))
        parts += _framed(b"\x0a", _resource(resource), inner)
    return b"".join(parts)


def encode_readable(span: ReadableSpan, attributes: Attributes = shown) -> bytes:
    """Encode one span of any library, without its tag."""
    written = _attributes(b"\x4a", attributes(span), _official_pair)
    try:
        context = span.get_span_context()
        assert context is not None
        return _span(context.trace_id.to_bytes(16, "big"), _readable(span, context), written, _official_pair)
    except Exception as error:  # the official encoder handles or reports unusual spans
        raise_interrupt(error)
        return _official_span(span, written)


def _readable(span: ReadableSpan, context: SpanContext) -> Fields:
    """Return the fields of a span without its attributes."""
    parent, status = span.parent, span.status
    if parent is not None and not parent.span_id:
        raise ValueError("the id of a parent is 0")
    links = [
        (
            f"{link.context.trace_id:032x}",
            f"{link.context.span_id:016x}",
            link.attributes,
            flags(link.context),
            link.dropped_attributes,
        )
        for link in span.links
    ]
    rare = (
        [(event.name, event.timestamp, event.attributes, event.dropped_attributes) for event in span.events],
        links,
        status.status_code.value,
        status.description or "",
        context.trace_state.to_header(),
        *(span.dropped_attributes, span.dropped_events, span.dropped_links),
    )
    life = span.name, span.kind.value + 1, span.start_time, span.end_time
    return context.span_id, parent.span_id if parent else 0, *life, flags(parent), {}, rare


# Single records.


def encode_request(blocks: Iterable[Block]) -> bytes:
    """Return a request of spans that `encode_span` encoded."""
    parts: list[bytes] = []
    for scope, spans in blocks:
        resource, about = _recorded(scope)
        parts += _framed(b"\x0a", resource, _framed(b"\x12", about, _span_fields(spans)))
    return b"".join(parts)


def frame_bytes(scope: Scope) -> int:
    """Return an upper bound of the bytes of a scope in a request, without its spans."""
    return len(encode_request([(scope, ())])) + _FRAME_TAGS


def span_bytes(span: bytes) -> int:
    """Return an upper bound of the bytes of an encoded span in a request."""
    return len(span) + _SPAN_TAG


def encode_span(record: SpanRecord) -> bytes:
    """Encode one record, without its tag."""
    return encode_fields(bytes.fromhex(record.trace_id), fields_of(record))


def encode_fields(trace_id: bytes, fields: Fields) -> bytes:
    """Encode one span of this id and these fields, without its tag."""
    return _span(trace_id, fields, _attributes(b"\x4a", fields[7], _said_pair), _said_pair)


def _recorded(scope: Scope) -> tuple[_Frame, _Frame]:
    resource = b"".join(_attributes(b"\x0a", scope.resource, _said_pair))
    about = _text(b"\x0a", scope.name) + _text(b"\x12", scope.version)
    about += b"".join(_attributes(b"\x1a", scope.attributes, _said_pair))
    return (
        (field(b"\x0a", resource), _text(b"\x1a", scope.resource_schema_url)),
        (field(b"\x0a", about), _text(b"\x1a", scope.schema_url)),
    )


# Parts of a message.


def _framed(tag: bytes, frame: _Frame, contents: Sequence[bytes]) -> list[bytes]:
    before, after = frame
    size = len(before) + sum(map(len, contents)) + len(after)
    return [tag, varint(size), before, *contents, after]


def _span_fields(spans: Iterable[bytes]) -> list[bytes]:
    return [part for span in spans for part in (b"\x12", varint(len(span)), span)]


def _span(trace_id: bytes, fields: Fields, attributes: list[bytes], rest: _Rest) -> bytes:
    """Encode a span with encoded attributes; `rest` encodes unusual ones of events and links."""
    span_id, parent_id, name, kind, start, end, flags, _, rare = fields
    events, links, code, message, state, *dropped = rare or NOTHING_RARE
    parts = [
        field(b"\x0a", trace_id),
        b"\x12\x08" + span_id.to_bytes(8, "big"),
        _text(b"\x1a", state),
        b"\x22\x08" + parent_id.to_bytes(8, "big") if parent_id else b"",
        _text(b"\x2a", name) + _count(b"\x30", kind) + _time(b"\x39", start) + _time(b"\x41", end),
        *attributes,
        _count(b"\x50", dropped[0]),
        *[field(b"\x5a", _event(rest, *event)) for event in events],
        _count(b"\x60", dropped[1]),
        *[field(b"\x6a", _link(rest, *link)) for link in links],
        _count(b"\x70", dropped[2]),
        field(b"\x7a", _text(b"\x12", message) + _count(b"\x18", code)),
        b"\x85\x01" + _fixed32(flags) if flags else b"",
    ]
    return b"".join(parts)


def _event(rest: _Rest, name: str, time: int, attributes: Mapping[str, Any], dropped: int) -> bytes:
    listed = _attributes(b"\x1a", attributes, rest)
    return b"".join((_time(b"\x09", time), _text(b"\x12", name), *listed, _count(b"\x20", dropped)))


def _link(
    rest: _Rest, trace_id: str, span_id: str, attributes: Mapping[str, Any], flags: int, dropped: int
) -> bytes:
    ids = field(b"\x0a", bytes.fromhex(trace_id)) + field(b"\x12", bytes.fromhex(span_id))
    after = b"\x35" + _fixed32(flags) if flags else b""
    return b"".join((ids, *_attributes(b"\x22", attributes, rest), _count(b"\x28", dropped), after))


def _time(tag: bytes, nanoseconds: int | None) -> bytes:
    return tag + _fixed64(nanoseconds) if nanoseconds else b""


def _count(tag: bytes, value: int) -> bytes:
    if value >> 32:
        raise OverflowError(f"{value} does not fit into 32 bits")
    return tag + varint(value) if value else b""


def _text(tag: bytes, value: str) -> bytes:
    content = _utf8(value)
    return field(tag, content) if content else b""


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:  # a lone surrogate, from spans that did not pass our recorder
        return value.encode("utf-8", "backslashreplace")


# Attributes.


def _attributes(tag: bytes, attributes: Mapping[str, Any] | None, rest: _Rest) -> list[bytes]:
    parts: list[bytes] = []
    for key, value in pairs(attributes):
        try:
            content = _WRITERS[type(value)](value)
            parts += (_head(tag, key, len(content)), content)
        except Exception as error:  # not supported by this module
            raise_interrupt(error)
            parts.append(rest(tag, key, value))
    return parts


@lru_cache(maxsize=1 << 12)
def _head(tag: bytes, key: str, size: int) -> bytes:
    """Return the bytes before a value of that size; cached, because spans repeat keys."""
    content, length = key.encode(), varint(size)
    name = field(b"\x0a", content) if content else b""
    return b"".join((tag, varint(len(name) + 1 + len(length) + size), name, b"\x12", length))


def _value(value: Any) -> bytes:
    return _WRITERS[type(value)](value)


def _string(value: str) -> bytes:
    return field(b"\x0a", value.encode())


@lru_cache(maxsize=1 << 12)
def _integer(value: int) -> bytes:
    if value not in _INT64:
        raise OverflowError(f"{value:#x} does not fit into 64 bits")
    return b"\x18" + varint(value % (1 << 64))


def _list(values: Sequence[Any]) -> bytes:
    numbers = as_numbers(values)
    if numbers is not None:
        return field(b"\x2a", items(numbers))
    return field(b"\x2a", b"".join([field(b"\x0a", _value(item)) for item in values]))


def _map(values: Mapping[Any, Any]) -> bytes:
    parts: list[bytes] = []
    for key, value in values.items():
        content = _value(value)
        parts += (_head(b"\x0a", str(key), len(content)), content)
    return field(b"\x32", b"".join(parts))


def _array(array: Array) -> bytes:
    """Encode an array like its list, except for integers beyond 64 bits, which are never recorded."""
    flat = array.ravel()
    if flat.dtype.kind in "bif" or (flat.dtype.kind == "u" and not (flat > _INT64[-1]).any()):
        return field(b"\x2a", items(flat))
    return _value(_said(flat))


_WRITERS: Mapping[type, Callable[[Any], bytes]] = {
    str: _string,
    float: _double,
    np.float64: _double,
    int: _integer,
    bool: {True: b"\x10\x01", False: b"\x10\x00"}.__getitem__,
    bytes: partial(field, b"\x3a"),
    type(None): lambda _: b"",
    list: _list,
    tuple: _list,
    dict: _map,
    np.ndarray: _array,
}


# Values without an OTLP type, encoded as text.


def _said_pair(tag: bytes, key: Any, value: Any) -> bytes:
    content = _value(_said(value))
    return _head(tag, _utf8(str(key)).decode(), len(content)) + content


def _said(value: Any) -> Any:
    """Return a value of a subclass as its base type; a value without an OTLP type as text."""
    if isinstance(value, str):
        return _utf8(value).decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value in _INT64 else decimal(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return _said(value.ravel().tolist())
    if isinstance(value, Mapping):
        return {_said(str(key)): _said(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_said(item) for item in value]
    return value if value is None or isinstance(value, (bool, bytes)) else _said(str(value))


# Values that the official encoder encodes.


def official(spans: Sequence[ReadableSpan]) -> Any:
    """Return the message of the official encoder; it and protobuf are imported on first use."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as encode

    return encode(spans)


def _probe(resource: Resource | None = None, **facts: Any) -> Any:
    """Return the official encoder's block of one span with these fields."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

    made_by = Resource({}) if resource is None else resource
    probe = ReadableSpan("", SpanContext(1, 1, is_remote=False), resource=made_by, **facts)
    return official([probe]).resource_spans[0]


def _official_pair(tag: bytes, key: Any, value: Any) -> bytes:
    """Encode an attribute by the official encoder; empty if it drops the attribute, which it logs."""
    written = _probe(attributes={key: value}).scope_spans[0].spans[0].attributes
    return b"".join(field(tag, pair.SerializeToString()) for pair in written)


def _official_span(span: ReadableSpan, attributes: list[bytes]) -> bytes:
    message = official([span]).resource_spans[0].scope_spans[0].spans[0]
    message.ClearField("attributes")
    message.MergeFromString(b"".join(attributes))
    return bytes(message.SerializeToString())


@by_identity
def _resource(resource: Resource) -> _Frame:
    block = _probe(resource)
    return field(b"\x0a", block.resource.SerializeToString()), _text(b"\x1a", block.schema_url)


@by_identity
def _scope(scope: InstrumentationScope | None) -> _Frame:
    block = _probe(instrumentation_scope=scope).scope_spans[0]
    return field(b"\x0a", block.scope.SerializeToString()), _text(b"\x1a", block.schema_url)
