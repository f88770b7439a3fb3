"""
Spans to OTLP JSON lines, as the OTLP file rules say.

A line is one TracesData; ids are hex, enums integers, 64-bit integers strings, bytes base64.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from mttp.spans import Link, Scope, SpanEvent, SpanRecord

__all__ = ["MAX_LINE_BYTES", "encode_records"]

MAX_LINE_BYTES = 1_000_000
"""A line stays under this, but for one that holds a single larger span: collectors split lines at 1 MiB."""

_encode = msgspec.json.Encoder().encode
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def encode_records(records: Iterable[SpanRecord], *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Lines, each ending in a newline, that hold the spans in order, side by side where they share a scope."""
    scope: Scope | None = None
    frame, size = (b"", b""), 0
    spans: list[bytes] = []
    for record in records:
        span = _dump(_span(record))
        full = size + len(span) + 1 > max_bytes
        if spans and (full or record.scope is not scope):
            yield _line(frame, spans)
            spans, size = [], 0
        if record.scope is not scope:
            scope, frame = record.scope, _frame(record.scope)
        if not spans:
            size = len(frame[0]) + len(frame[1])
        spans.append(span)
        size += len(span) + 1
    if spans:
        yield _line(frame, spans)


def _line(frame: tuple[bytes, bytes], spans: Sequence[bytes]) -> bytes:
    return b"".join((frame[0], b",".join(spans), frame[1]))


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
    span |= {
        "name": record.name,
        "kind": record.kind,
        "startTimeUnixNano": str(record.start_time),
        "endTimeUnixNano": str(record.end_time),
    }
    status = _present({"message": record.status_message, "code": record.status_code})
    lists = {
        "attributes": _pairs(record.attributes),
        "events": [_event(event) for event in record.events],
        "links": [_link(link) for link in record.links],
    }
    return span | _present(lists) | {"status": status}


def _event(event: SpanEvent) -> dict[str, Any]:
    pairs = {"attributes": _pairs(event.attributes)}
    return {"timeUnixNano": str(event.time), "name": event.name} | _present(pairs)


def _link(link: Link) -> dict[str, Any]:
    pairs = {"attributes": _pairs(link.attributes)}
    return {"traceId": link.trace_id, "spanId": link.span_id} | _present(pairs)


def _present(items: dict[str, Any], *, keep: str = "") -> dict[str, Any]:
    """Without what is empty: protobuf's JSON leaves defaults out."""
    return {key: value for key, value in items.items() if value or key == keep}


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        in_range = _INT64_MIN <= value <= _INT64_MAX
        return {"intValue": str(value)} if in_range else {"stringValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _spelled(value)}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_value(item) for item in value]} if value else {}}
    if isinstance(value, Mapping):
        return {"kvlistValue": _present({"values": _pairs(value)})}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return _value(value.ravel().tolist())
    return {} if value is None else {"stringValue": str(value)}


def _spelled(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


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
