"""Prepares ended spans for one transport."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import cast

from mttp.codec import episodes
from mttp.codec.withholding import Withholding
from mttp.otlp.spans import Arrival, EndedSpan
from mttp.otlp.step_columns import packed, spread
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline.content_filter import ContentFilter

__all__ = ["SpanPreparer"]


class SpanPreparer:
    """Filters the spans of a trace, and packs steps as columns where the transport takes them."""

    def __init__(self, target: ExportTarget, fault: Callable[[str, str], None]) -> None:
        """`fault(kind, detail)` is called for each value on which `redact` raised."""
        has_filter = target.withholding != Withholding()
        changes_spans = has_filter or target.names_outcomes or not target.takes_columns
        self.takes_frames = target.takes_frames and not changes_spans
        """Whether it needs nothing of a span but that it has ended."""
        self._takes_columns = target.takes_columns
        self._content_filter = ContentFilter(target.withholding, fault) if has_filter else None
        self._names_outcomes = target.names_outcomes

    def __call__(self, spans: Sequence[Arrival]) -> Sequence[Arrival]:
        """Return the spans to export; the list itself if nothing changes."""
        if self.takes_frames:
            return packed(spans, takes_columns=self._takes_columns)
        found = cast("list[EndedSpan]", spans)
        found = found if self._takes_columns else spread(found)
        if self._content_filter is not None:
            found = list(map(self._content_filter, found))
        arranged = packed(found, takes_columns=self._takes_columns)
        if self._names_outcomes:
            return list(map(_with_outcome, cast("list[EndedSpan]", arranged)))
        return arranged


def _with_outcome(span: EndedSpan) -> EndedSpan:
    """Return the span, or a copy whose name says an episode's outcome or a step's index."""
    name = episodes.telling_name(span.name, span.values)
    if name == span.name:
        return span
    named = copy.copy(span)
    named._name = name
    return named
