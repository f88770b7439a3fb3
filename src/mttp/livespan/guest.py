"""Another library's span among ours."""

from __future__ import annotations

from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from mttp.livespan.ended import Ended
from mttp.livespan.weight import SPAN_BYTES, weight

__all__ = ["GuestSpan"]


class GuestSpan(Ended):
    """A span of another library's that was recorded by way of our provider."""

    def __init__(self, span: ReadableSpan, values: dict[str, Any] | None = None) -> None:
        self._guest = span
        self._identity = cast(SpanContext, span.get_span_context())
        self.trace_id = self._identity.trace_id
        self._values = dict(span.attributes or {}) if values is None else values
        super().__init__(
            name=span.name,
            context=self._identity,
            parent=span.parent,
            resource=span.resource,
            attributes=self._values,
            events=span.events,
            links=span.links,
            kind=span.kind,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )
        marks = [event.attributes for event in span.events] + [link.attributes for link in span.links]
        self.size = SPAN_BYTES + weight(self._values)
        self.size += sum(SPAN_BYTES + weight(dict(attributes or {})) for attributes in marks)

    @property
    def identity(self) -> SpanContext:
        """Its context."""
        return self._identity

    @property
    def values(self) -> dict[str, Any]:
        """Its attributes."""
        return self._values

    def with_values(self, values: dict[str, Any]) -> GuestSpan:
        """The same span with other attributes."""
        return GuestSpan(self._guest, values)

    @property
    def dropped_attributes(self) -> int:
        """How many the library that recorded it left out; likewise below."""
        return self._guest.dropped_attributes

    @property
    def dropped_events(self) -> int:
        """Events that were left out."""
        return self._guest.dropped_events

    @property
    def dropped_links(self) -> int:
        """Links that were left out."""
        return self._guest.dropped_links
