"""
Spans to OTLP protobuf as the official encoder writes it, span by span, so that each one's size is known.

An array of numbers is written in one go: tokens are most of what there is to send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mttp.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.wire.otlp_json import decimal

__all__ = ["Block", "encode_request", "encode_span", "frame_bytes", "span_bytes"]

Block = tuple[Scope, Sequence[bytes]]
"""A scope, and encoded spans of it."""

_FRAME_TAGS = 32
"""More bytes than the tags and lengths around the spans of one scope take."""
_SPAN_TAG = 6
"""Likewise around one span."""
_INT64 = range(-(2**63), 2**63)
_CHUNK = 1 << 16
"""Integers that are written in one go."""
_WIDTHS = np.array([2**bits for bits in range(7, 64, 7)], np.uint64)
"""From these on an integer takes one more byte."""

_double = struct.Struct("<d").pack
_fixed32 = struct.Struct("<I").pack
_fixed64 = struct.Struct("<Q").pack


def encode_request(blocks: Iterable[Block]) -> bytes:
    """A trace export request, or what is the same, a TracesData."""
    return b"".join(_part(b"\x0a", _block(scope, spans)) for scope, spans in blocks)


def frame_bytes(scope: Scope) -> int:
    """What a request takes for a scope beside its spans, at most."""
    return len(encode_request([(scope, ())])) + _FRAME_TAGS


def span_bytes(span: bytes) -> int:
    """What a request takes for an encoded span, at most."""
    return len(span) + _SPAN_TAG


def encode_span(record: SpanRecord) -> bytes:
    """One span."""
    status = _text(b"\x12", record.status_message) + _number(b"\x18", record.status_code)
    return b"".join(
        (
            _part(b"\x0a", bytes.fromhex(record.trace_id)),
            _part(b"\x12", bytes.fromhex(record.span_id)),
            _text(b"\x1a", record.trace_state),
            _part(b"\x22", bytes.fromhex(record.parent_id)) if record.parent_id else b"",
            _text(b"\x2a", record.name),
            _number(b"\x30", record.kind),
            _time(b"\x39", record.start_time),
            _time(b"\x41", record.end_time),
            _pairs(b"\x4a", record.attributes),
            _number(b"\x50", record.dropped_attributes),
            *[_part(b"\x5a", _event(event)) for event in record.events],
            _number(b"\x60", record.dropped_events),
            *[_part(b"\x6a", _link(link)) for link in record.links],
            _number(b"\x70", record.dropped_links),
            _part(b"\x7a", status),
            b"\x85\x01" + _fixed32(record.flags) if record.flags else b"",
        )
    )


def _block(scope: Scope, spans: Sequence[bytes]) -> bytes:
    about = _text(b"\x0a", scope.name) + _text(b"\x12", scope.version) + _pairs(b"\x1a", scope.attributes)
    parts = [_part(b"\x0a", about), *[_part(b"\x12", span) for span in spans]]
    parts.append(_text(b"\x1a", scope.schema_url))
    resource = _part(b"\x0a", _pairs(b"\x0a", scope.resource))
    return resource + _part(b"\x12", b"".join(parts)) + _text(b"\x1a", scope.resource_schema_url)


def _event(event: SpanEvent) -> bytes:
    attributes = _pairs(b"\x1a", event.attributes) + _number(b"\x20", event.dropped_attributes)
    return _time(b"\x09", event.time) + _text(b"\x12", event.name) + attributes


def _link(link: Link) -> bytes:
    ids = _part(b"\x0a", bytes.fromhex(link.trace_id)) + _part(b"\x12", bytes.fromhex(link.span_id))
    attributes = _pairs(b"\x22", link.attributes) + _number(b"\x28", link.dropped_attributes)
    return ids + attributes + (b"\x35" + _fixed32(link.flags) if link.flags else b"")


def _pairs(tag: bytes, attributes: Mapping[str, Any]) -> bytes:
    return b"".join(_part(tag, _pair(str(key), value)) for key, value in attributes.items())


def _pair(key: str, value: Any) -> bytes:
    return _text(b"\x0a", key) + _part(b"\x12", _value(value))


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return _part(b"\x0a", _utf8(value))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return _integer(value) if value in _INT64 else _part(b"\x0a", decimal(value).encode())
    if isinstance(value, float):
        return b"\x21" + _double(value)
    if isinstance(value, (bytes, bytearray)):
        return _part(b"\x3a", bytes(value))
    if isinstance(value, Mapping):
        return _part(b"\x32", _pairs(b"\x0a", value))
    if isinstance(value, Sequence):
        return _part(b"\x2a", b"".join(_part(b"\x0a", _value(item)) for item in value))
    if isinstance(value, np.ndarray):
        return _part(b"\x2a", _array(value.ravel()))
    return b"" if value is None else _part(b"\x0a", _utf8(str(value)))


def _array(numbers: np.ndarray[Any, Any]) -> bytes:
    """The items of a flat array: those of one width as the rows of a table of bytes."""
    if numbers.dtype.kind == "f":
        raw = numbers.astype("<f8").view(np.uint8).reshape(-1, 8)
        return _rows(b"\x0a\x09\x21", raw)
    if numbers.dtype.kind == "b":
        return _rows(b"\x0a\x02\x10", numbers.view(np.uint8).reshape(-1, 1))
    if numbers.dtype.kind in "iu" and numbers.dtype != np.uint64:
        chunks = range(0, len(numbers), _CHUNK)
        return b"".join(_integers(numbers[start : start + _CHUNK]) for start in chunks)
    return b"".join(_part(b"\x0a", _value(item)) for item in numbers.tolist())


def _rows(prefix: bytes, raw: np.ndarray[Any, Any]) -> bytes:
    rows = np.empty((len(raw), len(prefix) + raw.shape[1]), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = raw
    return rows.tobytes()


def _integers(numbers: np.ndarray[Any, Any]) -> bytes:
    """Items of varying width: rows of the widest, of which each keeps as many bytes as it needs."""
    bits = numbers.astype(np.int64).view(np.uint64)
    widths = 1 + np.sum(bits[:, None] >= _WIDTHS, axis=1)
    digits = np.arange(widths.max(), dtype=np.uint64)
    rows = np.empty((len(bits), 3 + len(digits)), np.uint8)
    rows[:, 0], rows[:, 1], rows[:, 2] = 0x0A, 1 + widths, 0x18
    rows[:, 3:] = (bits[:, None] >> (7 * digits)) & 0x7F
    rows[:, 3:] |= np.where(digits < widths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return bytes(rows[np.arange(rows.shape[1]) < 3 + widths[:, None]])


def _integer(value: int) -> bytes:
    return b"\x18" + _varint(value % 2**64)


def _number(tag: bytes, value: int) -> bytes:
    return tag + _varint(value) if value else b""


def _time(tag: bytes, nanoseconds: int) -> bytes:
    return tag + _fixed64(nanoseconds) if nanoseconds else b""


def _text(tag: bytes, value: str) -> bytes:
    return _part(tag, _utf8(value)) if value else b""


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:  # a lone surrogate, from spans that did not pass our recorder
        return value.encode("utf-8", "backslashreplace")


def _part(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
