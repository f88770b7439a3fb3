"""Prepares ended spans for one transport."""

from __future__ import annotations

import copy
from collections.abc import Callable

from mttp.codec import episodes
from mttp.codec.withholding import Withholding
from mttp.otlp.spans import EndedSpan
from mttp.otlp.step_columns import packed, spread
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline.content_filter import ContentFilter

__all__ = ["SpanPreparer"]


class SpanPreparer:
    """Filters the spans of a trace, and packs steps as columns where the transport takes them."""

    def __init__(self, target: ExportTarget, fault: Callable[[str, str], None]) -> None:
        """`fault(kind, detail)` is called for each value on which `redact` raised."""
        self._takes_columns = target.takes_columns
        has_filter = target.withholding != Withholding()
        self._content_filter = ContentFilter(target.withholding, fault) if has_filter else None
        self._names_outcomes = target.names_outcomes

    def __call__(self, spans: list[EndedSpan]) -> list[EndedSpan]:
        """Return the spans to export; the list itself if nothing changes."""
        found = spans if self._takes_columns else spread(spans)
        if self._content_filter is not None:
            found = list(map(self._content_filter, found))
        found = packed(found, takes_columns=self._takes_columns)
        return list(map(_with_outcome, found)) if self._names_outcomes else found


def _with_outcome(span: EndedSpan) -> EndedSpan:
    """Return the span, or a copy whose name says an episode's outcome or a step's index."""
    name = episodes.telling_name(span.name, span.values)
    if name == span.name:
        return span
    named = copy.copy(span)
    named._name = name
    return named
