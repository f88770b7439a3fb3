"""OpenTelemetry spans as frames and records, and frames as spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from typing_extensions import Self

from mttp.codec.plain import Faults
from mttp.codec.profiles import Profile, arrays
from mttp.model import spans
from mttp.model.spans import SpanRecord
from mttp.otlp import frames
from mttp.otlp.frames import Frame
from mttp.otlp.span_fields import by_identity, flags
from mttp.otlp.spans.conversion import (
    CountedEvent,
    CountedLink,
    as_tuple,
    event_fields,
    left_out,
    link_fields,
    mended,
    printed,
)
from mttp.otlp.spans.recording_span import RecordingSpan
from mttp.otlp.spans.trace import SAMPLED, SpanOrigin
from mttp.semconv import attributes as a

__all__ = ["EndedSpan", "foreign", "framed", "record"]

_UNSAMPLED = TraceFlags(TraceFlags.DEFAULT)
_KINDS = {kind.value + 1: kind for kind in SpanKind}


class EndedSpan(ReadableSpan):
    """An ended span for exporters and span processors: a read-only view of a record."""

    is_timed = True
    """Whether start and end are its own, and not those of the whole episode or batch."""

    def __init__(self, record: SpanRecord, *, is_sampled: bool = True) -> None:
        """`is_sampled` is whether its trace is sampled, which records do not say."""
        self._is_sampled = is_sampled
        self.record = record
        """The record; its attributes may be numpy arrays."""
        self.trace_id = int(record.trace_id, 16)
        """Id of its trace."""
        state = TraceState.from_header([record.trace_state]) if record.trace_state else None
        parent = _context(self.trace_id, record.parent_id, is_remote=bool(record.flags & 0x200))
        super().__init__(
            record.name,
            _context(self.trace_id, record.span_id, state, flags=SAMPLED if is_sampled else _UNSAMPLED),
            parent if record.parent_id else None,
            _resource(record.scope),
            _shown(record.attributes),
            list(map(_event, record.events)),
            list(map(_link, record.links)),
            _KINDS.get(record.kind, _KINDS[1]),
            None,
            Status(StatusCode(record.status_code), record.status_message or None),
            record.start_time,
            record.end_time,
            _scope(record.scope),
        )

    @property
    def values(self) -> Mapping[str, Any]:
        """Its attributes, which may be numpy arrays."""
        return self.record.attributes

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Return the span with other attributes."""
        return type(self)(replace(self.record, attributes=values), is_sampled=self._is_sampled)

    @property
    def dropped_attributes(self) -> int:
        """Number of attributes that its library dropped."""
        return self.record.dropped_attributes

    @property
    def dropped_events(self) -> int:
        """Number of events that its library dropped."""
        return self.record.dropped_events

    @property
    def dropped_links(self) -> int:
        """Number of links that its library dropped."""
        return self.record.dropped_links

    def to_json(self, indent: int | None = 4) -> str:
        """Return the span as JSON text like the SDK, with bytes as base64."""
        return printed(self, indent)


def _shown(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes in OpenTelemetry's types."""
    return MappingProxyType({key: as_tuple(value) for key, value in arrays(attributes).items()})


def _context(
    trace_id: int,
    span_id: str,
    state: TraceState | None = None,
    *,
    is_remote: bool = False,
    flags: TraceFlags = SAMPLED,
) -> SpanContext:
    return SpanContext(trace_id, int(span_id or "0", 16), is_remote, flags, state)


def _event(event: spans.SpanEvent) -> Event:
    return CountedEvent(event.name, _shown(event.attributes), event.time, dropped=event.dropped_attributes)


def _link(link: spans.Link) -> Link:
    context = _context(int(link.trace_id, 16), link.span_id, is_remote=bool(link.flags & 0x200))
    return CountedLink(context, _shown(link.attributes), dropped=link.dropped_attributes)


@by_identity
def _resource(scope: spans.Scope) -> Resource:
    return Resource(dict(scope.resource), scope.resource_schema_url)


@by_identity
def _scope(scope: spans.Scope) -> InstrumentationScope:
    return InstrumentationScope(scope.name, scope.version, scope.schema_url, dict(scope.attributes))


# Spans as frames.


def framed(span: ReadableSpan | SpanRecord | Frame) -> Frame:
    """Return a span as a frame, whose scope the caller keeps; raises ValueError for one without a context."""
    if isinstance(span, Frame):
        return span
    if isinstance(span, RecordingSpan):
        return span.frame()
    if isinstance(span, EndedSpan):
        span = span.record
    if isinstance(span, SpanRecord):
        return frames.framed(span, _number(span.scope))
    origin = _origin(span.resource, span.instrumentation_scope or _NO_SCOPE)
    return frames.framed(_readable(span, origin.record), origin.number)


_NO_SCOPE = InstrumentationScope("")
_origin = by_identity(SpanOrigin)


@by_identity
def _number(scope: spans.Scope) -> int:
    return frames.number_of(scope)


def foreign(span: ReadableSpan, faults: Faults, session: SpanOrigin) -> Frame:
    """Return a span of another library as a frame; invalid fields are corrected, and listed in `faults`."""
    origin = session.of_library(span.instrumentation_scope or _NO_SCOPE)
    fields = mended(span, faults)
    attributes = fields["attributes"]
    if named := {key: value for key, value in attributes.items() if session.secrets.names(key)}:
        omissions: list[str] = []
        attributes |= session.secrets.mapping(named, omissions)
        if omissions:
            attributes[a.OMISSIONS] = omissions
    context = span.get_span_context()
    is_sampled = context is not None and context.trace_flags.sampled
    return frames.framed(_readable(span, origin.record, **fields), origin.number, is_sampled=is_sampled)


def _readable(span: ReadableSpan, scope: spans.Scope, **fields: Any) -> SpanRecord:
    """Return a span of another library as a record; `fields` replace its own."""
    context = span.get_span_context()
    if context is None:
        raise ValueError(f"span {span.name!r} has no context")

    def field(name: str) -> Any:
        return fields[name] if name in fields else getattr(span, name)

    return SpanRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id="" if span.parent is None else f"{span.parent.span_id:016x}",
        name=field("name"),
        kind=field("kind").value + 1,
        start_time=field("start_time") or 0,
        end_time=field("end_time") or 0,
        attributes=dict(field("attributes") or {}),
        status_code=field("status").status_code.value,
        status_message=field("status").description or "",
        events=[spans.SpanEvent(*event_fields(event)) for event in field("events")],
        links=[spans.Link(*link_fields(link)) for link in field("links")],
        trace_state=context.trace_state.to_header(),
        flags=flags(span.parent),
        dropped_attributes=left_out(span.dropped_attributes),
        dropped_events=left_out(span.dropped_events),
        dropped_links=left_out(span.dropped_links),
        scope=scope,
    )


def record(span: ReadableSpan | Frame, profile: Profile = arrays) -> SpanRecord:
    """Return a span as a record, with attributes converted by `profile`."""
    if isinstance(span, EndedSpan):
        return replace(span.record, attributes=profile(span.record.attributes))
    if isinstance(span, (Frame, RecordingSpan)):
        return frames.record(framed(span), profile)
    return _readable(span, _origin(span.resource, span.instrumentation_scope or _NO_SCOPE).record)
