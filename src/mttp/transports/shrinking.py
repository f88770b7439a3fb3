"""Reduces spans for receivers that reject large ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mttp.codec.withholding import degraded
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame, record

__all__ = ["smaller"]


def smaller(frame: Frame, reason: str) -> Iterator[SpanRecord]:
    """Yield smaller and smaller forms of the span, whose omissions list what is missing and the reason."""
    form = whole = record(frame)
    for attributes in degraded(whole.attributes, reason):
        form = replace(whole, attributes=attributes)
        yield form
    yield replace(form, events=(), dropped_events=whole.dropped_events + len(whole.events))
