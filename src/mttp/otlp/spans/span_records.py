"""Converts OpenTelemetry spans to records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from mttp.codec import kinds
from mttp.codec.fitting import wire_bytes
from mttp.codec.profiles import Profile, arrays
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp import frames
from mttp.otlp.frames import Frame
from mttp.otlp.spans import EndedSpan, RecordingSpan, SpanOrigin, scope_of
from mttp.otlp.spans.records import KINDS, event_record, flags, link_record
from mttp.semconv import spans as names

__all__ = ["Restored", "record"]

_NO_RESOURCE = Resource.get_empty()
"""An explicit resource; without one the SDK would detect the machine's for each span."""


class Restored(EndedSpan):
    """A record as a span, which mttp's transports can export."""

    def __init__(self, record: SpanRecord) -> None:
        self._identity = SpanContext(int(record.trace_id, 16), int(record.span_id, 16), is_remote=False)
        super().__init__(record.name, self._identity, resource=_NO_RESOURCE)
        self.record = record
        """The record; of OpenTelemetry's properties only name and ids are set."""
        self.trace_id = self._identity.trace_id
        self.size = wire_bytes(record.attributes)

    @property
    def identity(self) -> SpanContext:
        """Its span context."""
        return self._identity

    @property
    def scope(self) -> Scope:
        """Its scope, with the resource."""
        return self.record.scope

    @property
    def values(self) -> dict[str, Any]:
        """Its attributes."""
        return dict(self.record.attributes)

    @property
    def is_last(self) -> bool:
        """Whether it is the last span of its trace, or of a process's part of the trace."""
        is_root = not self.record.parent_id
        return is_root or kinds.of(self.name, self.values, is_root=False) == names.SEGMENT


def record(span: ReadableSpan | Frame, profile: Profile = arrays) -> SpanRecord:
    """Convert a span; `profile` converts the attributes of mttp's spans."""
    if isinstance(span, Frame):
        return frames.record(span, scope_of(span.scope), profile)
    if isinstance(span, RecordingSpan):
        return span.as_record(profile)
    if isinstance(span, Restored):
        return replace(span.record, attributes=profile(span.record.attributes))
    context = span.get_span_context()
    if context is None:
        raise ValueError(f"span {span.name!r} has no context")
    origin = SpanOrigin(span.resource, span.instrumentation_scope or InstrumentationScope(""))
    return SpanRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id="" if span.parent is None else f"{span.parent.span_id:016x}",
        name=span.name,
        kind=KINDS[span.kind],
        start_time=span.start_time or 0,
        end_time=span.end_time or 0,
        attributes=dict(span.attributes or {}),
        status_code=span.status.status_code.value,
        status_message=span.status.description or "",
        events=[event_record(event) for event in span.events],
        links=[link_record(link) for link in span.links],
        trace_state=context.trace_state.to_header(),
        flags=flags(span.parent),
        dropped_attributes=span.dropped_attributes,
        dropped_events=span.dropped_events,
        dropped_links=span.dropped_links,
        scope=origin.record,
    )
