"""Converts events, links and flags of OpenTelemetry spans to those of records."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Event
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode
from opentelemetry.util.types import Attributes

from mttp.model import spans

__all__ = ["KINDS", "STATUSES", "event_record", "flags", "link_record"]

KINDS = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}
STATUSES = {StatusCode.UNSET: 0, StatusCode.OK: 1, StatusCode.ERROR: 2}


def event_record(event: Event) -> spans.SpanEvent:
    """Convert an event."""
    return spans.SpanEvent(event.name, event.timestamp, _listed(event.attributes), event.dropped_attributes)


def link_record(link: Link) -> spans.Link:
    """Convert a link."""
    return spans.Link(
        f"{link.context.trace_id:032x}",
        f"{link.context.span_id:016x}",
        _listed(link.attributes),
        flags(link.context),
        link.dropped_attributes,
    )


def _listed(attributes: Attributes) -> dict[str, Any]:
    """Return attributes with tuples as lists, as in records that were read."""
    found = dict(attributes or {})
    return {key: list(value) if type(value) is tuple else value for key, value in found.items()}


def flags(other: SpanContext | None) -> int:
    """Return OTLP's flags of a span with this parent, or of a link to this span."""
    return 0x100 | (0x200 if other is not None and other.is_remote else 0)
