"""Reduces spans for receivers that reject large ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opentelemetry.sdk.trace import ReadableSpan

from mttp.codec.profiles import full
from mttp.codec.withholding import degraded
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame
from mttp.otlp.spans.span_records import record

__all__ = ["smaller"]


def smaller(span: ReadableSpan | Frame, reason: str) -> Iterator[SpanRecord]:
    """Yield smaller and smaller forms of the span, whose omissions list what is missing and the reason."""
    form = whole = record(span, full)
    for attributes in degraded(whole.attributes, reason):
        form = replace(whole, attributes=attributes)
        yield form
    yield replace(form, events=(), dropped_events=whole.dropped_events + len(whole.events))
