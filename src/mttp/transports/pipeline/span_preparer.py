"""Prepares ended spans for one transport."""

from __future__ import annotations

from collections.abc import Callable

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

    def __call__(self, spans: list[EndedSpan]) -> list[EndedSpan]:
        """Return the spans to export; the list itself if nothing changes."""
        found = spans if self._takes_columns else spread(spans)
        if self._content_filter is not None:
            found = list(map(self._content_filter, found))
        return packed(found, takes_columns=self._takes_columns)
