"""The filter that removes attributes a transport must not receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mttp.codec.withholding import Kept, Withholding
from mttp.model.spans import Link, SpanEvent, SpanRecord
from mttp.otlp import frames
from mttp.otlp.frames import Frame

__all__ = ["ContentFilter", "kept_of", "with_kept"]

_Mark = TypeVar("_Mark", SpanEvent, Link)


class ContentFilter:
    """Applies a `Withholding` to spans; keeps the byte budget that each open episode has used."""

    def __init__(self, withholding: Withholding, fault: Callable[[str, str], None]) -> None:
        """`fault(kind, detail)` is called for each value on which `redact` raised."""
        self._withholding = withholding
        self._fault = fault
        self._spent: dict[int, int] = {}

    def __call__(self, frame: Frame) -> Frame:
        """Return the span without withheld values, or the span itself if none is withheld."""
        trace_id, record = frame.trace_id, frames.record(frame)
        content = kept_of(self._withholding, record, self._spent.get(trace_id, 0))
        for detail in content.raised:
            self._fault("redaction_failed", detail)
        if frame.is_last:
            self._spent.pop(trace_id, None)
        elif content.spent:
            self._spent[trace_id] = content.spent
        return frames.changed(frame, with_kept(record, content)) if content.changed else frame


def kept_of(withholding: Withholding, record: SpanRecord, spent: int) -> Kept:
    """Return what is delivered of a span; `spent` are the bytes that its trace has used."""
    marks = [event.attributes for event in record.events] + [link.attributes for link in record.links]
    return withholding.keep(record.attributes, spent=spent, status=record.status_message, marks=marks)


def with_kept(record: SpanRecord, kept: Kept) -> SpanRecord:
    """Return the span with only the kept attributes and status message."""
    count = len(record.events)
    return replace(
        record,
        attributes=kept.values,
        status_message=kept.status,
        events=list(map(_marked, record.events, kept.marks[:count])),
        links=list(map(_marked, record.links, kept.marks[count:])),
    )


def _marked(mark: _Mark, attributes: Mapping[str, Any]) -> _Mark:
    return replace(mark, attributes=attributes)
