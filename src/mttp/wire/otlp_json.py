"""
Spans to OTLP JSON lines, as the OTLP file rules say.

A line is one TracesData; ids are hex, enums integers, 64-bit integers strings, bytes base64.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from mttp.spans import Link, Scope, SpanEvent, SpanRecord

__all__ = ["MAX_LINE_BYTES", "decimal", "encode_records"]

MAX_LINE_BYTES = 1_000_000
"""A line stays under this, but for one that holds a single larger span: collectors split lines at 1 MiB."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def encode_records(records: Iterable[SpanRecord], *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """
    Lines, each ending in a newline, that hold the spans in order, side by side where they share a scope.

    Spans of one trace that come together are on one line where they fit on one.
    """
    line = _Line(Scope(), max_bytes)
    for _, group in groupby(records, key=attrgetter("trace_id")):
        trace = [(record.scope, _dump(_span(record))) for record in group]
        if not line.fits(sum(len(span) + 1 for _, span in trace)):
            yield from line.end()
        for scope, span in trace:
            if not line.holds(scope) or not line.fits(len(span) + 1):
                yield from line.end()
                line = _Line(scope, max_bytes)
            line.add(span)
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

    def fits(self, size: int) -> bool:
        return not self._spans or self._size + size <= self._max_bytes

    def add(self, span: bytes) -> None:
        self._spans.append(span)
        self._size += len(span) + 1

    def end(self) -> Iterator[bytes]:
        """The line, unless it is empty; the next one begins."""
        if self._spans:
            yield b"".join((self._before, b",".join(self._spans), self._after))
        self._spans, self._size = [], self._empty


def _frame(scope: Scope) -> tuple[bytes, bytes]:
    """What stands around the spans of one scope: a line's beginning and its end."""
    pairs = _pairs(scope.attributes)
    about = _present({"name": scope.name, "version": scope.version, "attributes": pairs})
    block: dict[str, Any] = {"scope": about, "spans": [], "schemaUrl": scope.schema_url}
    resource = _present({"attributes": _pairs(scope.resource)})
    whole = {"resource": resource, "scopeSpans": [_present(block, keep="spans")]}
    if scope.resource_schema_url:
        whole["schemaUrl"] = scope.resource_schema_url
    before, _, after = _dump({"resourceSpans": [whole]}).rpartition(b'"spans":[]')
    return before + b'"spans":[', b"]" + after + b"\n"


def _span(record: SpanRecord) -> dict[str, Any]:
    span: dict[str, Any] = {"traceId": record.trace_id, "spanId": record.span_id}
    if record.trace_state:
        span["traceState"] = record.trace_state
    if record.parent_id:
        span["parentSpanId"] = record.parent_id
    if record.flags:
        span["flags"] = record.flags
    rest = {
        "name": record.name,
        "kind": record.kind,
        "startTimeUnixNano": _time(record.start_time),
        "endTimeUnixNano": _time(record.end_time),
        "attributes": _pairs(record.attributes),
        "droppedAttributesCount": record.dropped_attributes,
        "events": [_event(event) for event in record.events],
        "droppedEventsCount": record.dropped_events,
        "links": [_link(link) for link in record.links],
        "droppedLinksCount": record.dropped_links,
    }
    span |= _present(rest)
    span["status"] = _present({"message": record.status_message, "code": record.status_code})
    return span


def _event(event: SpanEvent) -> dict[str, Any]:
    whole = {
        "timeUnixNano": _time(event.time),
        "name": event.name,
        "attributes": _pairs(event.attributes),
        "droppedAttributesCount": event.dropped_attributes,
    }
    return _present(whole)


def _link(link: Link) -> dict[str, Any]:
    whole = {
        "traceId": link.trace_id,
        "spanId": link.span_id,
        "attributes": _pairs(link.attributes),
        "droppedAttributesCount": link.dropped_attributes,
        "flags": link.flags,
    }
    return _present(whole)


def _time(nanoseconds: int) -> str:
    return str(nanoseconds) if nanoseconds else ""


def _present(items: dict[str, Any], *, keep: str = "") -> dict[str, Any]:
    """Without what is empty: protobuf's JSON leaves defaults out."""
    return {key: value for key, value in items.items() if value or key == keep}


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": str(key), "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        in_range = _INT64_MIN <= value <= _INT64_MAX
        return {"intValue" if in_range else "stringValue": decimal(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _spelled(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kvlistValue": _present({"values": _pairs(value)})}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_value(item) for item in value]} if value else {}}
    if isinstance(value, np.ndarray):
        return _value(value.ravel().tolist())
    return {} if value is None else {"stringValue": str(value)}


def decimal(value: int) -> str:
    """An integer of any size in digits."""
    try:
        return int.__repr__(value)
    except ValueError:  # Python refuses to print integers of more than some 4,300 digits
        return hex(value)


def _spelled(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _builtin(value: Any) -> Any:
    """A text or a number of a class of its own, as numpy's and enums are, as what it is at heart."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    raise TypeError(f"{type(value).__name__} can't be written")


_encode = msgspec.json.Encoder(enc_hook=_builtin).encode


def _dump(message: dict[str, Any]) -> bytes:
    try:
        return _encode(message)
    except UnicodeEncodeError:  # a lone surrogate, from spans that did not pass our recorder
        return _encode(_scrubbed(message))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
    return [_scrubbed(item) for item in value] if isinstance(value, list) else value
