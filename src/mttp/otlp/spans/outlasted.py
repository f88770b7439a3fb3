"""Spans that a context may still hold after the end of their block."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, get_current_span

__all__ = ["AmbientSpan", "Outlasted"]


class Outlasted(Span):
    """A span that stands for what encloses its block, wherever it is still current after its end."""

    outside: Context | None = None
    """
    The context around its block, once it has ended while a context may hold it; else None.

    Any tracer or propagator asks the current span for its context, so that it gets that of the span which is
    current in `outside`.
    """


class AmbientSpan(NonRecordingSpan, Outlasted):
    """The current span of another process, in the block of a remote episode."""

    def get_span_context(self) -> SpanContext:
        """Return its span context; after the block, that of what encloses the block."""
        if self.outside is None:
            return super().get_span_context()
        return get_current_span(self.outside).get_span_context()
