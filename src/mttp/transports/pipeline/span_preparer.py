"""Prepares ended spans for one transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mttp.codec import episodes
from mttp.codec.withholding import Withholding
from mttp.otlp import frames
from mttp.otlp.frames import Frame
from mttp.otlp.step_columns import packed, spread
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline.content_filter import ContentFilter

__all__ = ["SpanPreparer"]


class SpanPreparer:
    """Filters the spans of a trace, and packs steps as columns where the transport takes them."""

    def __init__(self, target: ExportTarget, fault: Callable[[str, str], None]) -> None:
        """`fault(kind, detail)` is called for each value on which `redact` raised."""
        has_filter = target.withholding != Withholding()
        self.writes_lines = target.writes_lines and target.takes_frames and not has_filter
        """Whether the transport writes the JSON of unchanged spans."""
        self._takes_columns = target.takes_columns
        self._content_filter = ContentFilter(target.withholding, fault) if has_filter else None
        self._names_outcomes = target.names_outcomes

    def __call__(self, spans: Sequence[Frame]) -> Sequence[Frame]:
        """Return the spans to export; the same sequence if nothing changes."""
        found = spans if self._takes_columns else spread(spans)
        if self._content_filter is not None:
            found = list(map(self._content_filter, found))
        arranged = packed(found, takes_columns=self._takes_columns)
        return list(map(_with_outcome, arranged)) if self._names_outcomes else arranged


def _with_outcome(frame: Frame) -> Frame:
    """Return the span, or a copy whose name says an episode's outcome or a step's index."""
    record = frames.record(frame)
    name = episodes.telling_name(record.name, record.attributes)
    return frame if name == record.name else frames.changed(frame, replace(record, name=name))
