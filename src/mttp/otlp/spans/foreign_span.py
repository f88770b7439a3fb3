"""Spans of other libraries."""

from __future__ import annotations

import copy
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext
from typing_extensions import Self

from mttp.codec.plain import Faults
from mttp.codec.secrets import Secrets
from mttp.otlp.spans.conversion import left_out, mended
from mttp.otlp.spans.ended import EndedSpan
from mttp.otlp.spans.size_estimate import SPAN_BYTES, weight
from mttp.semconv import attributes as a

__all__ = ["ForeignSpan"]


class ForeignSpan(EndedSpan):
    """A span of another library that was recorded by our provider."""

    def __init__(self, span: ReadableSpan, faults: Faults, secrets: Secrets) -> None:
        """Correct invalid fields of the span, and list them in `faults`."""
        self._original = span
        self._identity = cast(SpanContext, span.get_span_context())
        self.trace_id = self._identity.trace_id
        fields = mended(span, faults)
        self._values: dict[str, Any] = fields["attributes"]
        if named := {key: value for key, value in self._values.items() if secrets.names(key)}:
            omissions: list[str] = []
            self._values |= secrets.mapping(named, omissions)
            if omissions:
                self._values[a.OMISSIONS] = omissions
        super().__init__(
            context=self._identity,
            parent=span.parent,
            resource=span.resource,
            instrumentation_scope=span.instrumentation_scope,
            **fields,
        )
        self.size = SPAN_BYTES + weight(self._values)
        marks = [mark.attributes for mark in self._events] + [mark.attributes for mark in self._links]
        self.size += sum(SPAN_BYTES + weight(dict(attributes or {})) for attributes in marks)

    @property
    def identity(self) -> SpanContext:
        """Its span context."""
        return self._identity

    @property
    def values(self) -> dict[str, Any]:
        """Its attributes."""
        return self._values

    def with_values(self, values: dict[str, Any]) -> Self:
        """Return a copy of the span with other attributes."""
        shown = copy.copy(self)
        shown._values = shown._attributes = values
        return shown

    @property
    def dropped_attributes(self) -> int:
        """Number of attributes that its library dropped."""
        return left_out(self._original.dropped_attributes)

    @property
    def dropped_events(self) -> int:
        """Number of events that its library dropped."""
        return left_out(self._original.dropped_events)

    @property
    def dropped_links(self) -> int:
        """Number of links that its library dropped."""
        return left_out(self._original.dropped_links)
