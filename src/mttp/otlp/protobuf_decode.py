"""Decodes OTLP protobuf messages to span records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from mttp.errors import ReadError
from mttp.model.nesting import MAX_DEPTH
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord

__all__ = ["decode_message"]


def decode_message(content: bytes) -> list[SpanRecord]:
    """
    The spans of a TracesData, or of an export request, which is the same, in the order in which they stand.

    Raises ReadError where it is neither.
    """
    try:
        traces = TracesData.FromString(content)
    except DecodeError as error:
        raise ReadError(f"not valid OTLP protobuf: {error}") from error
    return [
        _record(span, scope)
        for resource_spans in traces.resource_spans
        for scope_spans in resource_spans.scope_spans
        for scope in [_scope(resource_spans, scope_spans)]
        for span in scope_spans.spans
    ]


def _scope(resource_spans: ResourceSpans, scope_spans: ScopeSpans) -> Scope:
    return Scope(
        name=scope_spans.scope.name,
        version=scope_spans.scope.version,
        schema_url=scope_spans.schema_url,
        resource=_attributes(resource_spans.resource.attributes),
        attributes=_attributes(scope_spans.scope.attributes),
        resource_schema_url=resource_spans.schema_url,
    )


def _record(span: Span, scope: Scope) -> SpanRecord:
    return SpanRecord(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        status_code=span.status.code,
        status_message=span.status.message,
        events=tuple(_event(event) for event in span.events),
        links=tuple(_link(link) for link in span.links),
        trace_state=span.trace_state,
        flags=span.flags,
        dropped_attributes=span.dropped_attributes_count,
        dropped_events=span.dropped_events_count,
        dropped_links=span.dropped_links_count,
        scope=scope,
    )


def _event(event: Span.Event) -> SpanEvent:
    attributes = _attributes(event.attributes)
    return SpanEvent(event.name, event.time_unix_nano, attributes, event.dropped_attributes_count)


def _link(link: Span.Link) -> Link:
    attributes = _attributes(link.attributes)
    return Link(
        link.trace_id.hex(), link.span_id.hex(), attributes, link.flags, link.dropped_attributes_count
    )


def _attributes(pairs: Iterable[KeyValue], depth: int = 0) -> dict[str, Any]:
    return {pair.key: _plain(pair.value, depth) for pair in pairs}


def _plain(value: AnyValue, depth: int) -> Any:
    """Return a value at that depth of arrays and maps; those beyond the limit become empty."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        items = value.array_value.values if depth < MAX_DEPTH else ()
        return [_plain(item, depth + 1) for item in items]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values if depth < MAX_DEPTH else (), depth + 1)
    return None if kind is None else getattr(value, kind)
