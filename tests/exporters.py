"""Exporters that misbehave on demand, and spans for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

import mttp
from mttp.codec.profiles import full
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame
from mttp.otlp.spans import SpanOrigin
from mttp.otlp.spans.span_records import record

_ORIGINS: list[SpanOrigin] = []
"""Those of frames that outlast their sessions."""


def taken(session: mttp.Session) -> list[Frame]:
    """What the session is given from here on, span by span; it goes nowhere else."""
    spans: list[Frame] = []
    _ORIGINS.append(session._recorder.origin)
    session._recorder.take = lambda span: spans.append(span.frame())
    return spans


class Exporter(SpanExporter):
    """Keeps the segments it is given, unless told otherwise."""

    def __init__(self) -> None:
        self.segments: list[list[SpanRecord]] = []
        self.offers = 0
        self.trouble: Callable[[Sequence[SpanRecord]], SpanExportResult | None] = lambda segment: None
        """Called with each segment first; may raise, answer that it is refused, or take its time."""
        self.open = threading.Event()
        """Nothing is taken while it is clear."""
        self.open.set()
        self.shutdowns = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans."""
        segment = [record(span, full) for span in spans]
        self.offers += 1
        self.open.wait()
        answer = self.trouble(segment) or SpanExportResult.SUCCESS
        if answer is SpanExportResult.SUCCESS:
            self.segments.append(segment)
        return answer

    def shutdown(self) -> None:
        """Count it."""
        self.shutdowns += 1

    def records(self) -> Iterator[SpanRecord]:
        """All spans that were taken."""
        return iter([record for segment in self.segments for record in segment])

    def names(self) -> list[str]:
        """Their names."""
        return [record.name for record in self.records()]


def raising(error: Exception) -> Callable[[Sequence[SpanRecord]], None]:
    """Trouble that raises."""

    def trouble(segment: Sequence[SpanRecord]) -> None:
        raise error

    return trouble


def refusing(segment: Sequence[SpanRecord]) -> SpanExportResult:
    """Trouble that answers so."""
    return SpanExportResult.FAILURE


def numbered(number: int, *, size: int = 0) -> ReadableSpan:
    """A span with a distinct name."""
    return ReadableSpan(
        name=f"span {number}",
        context=SpanContext(1, number + 1, is_remote=False),
        resource=Resource({}),
        attributes={"filling": "x" * size} if size else {},
        instrumentation_scope=InstrumentationScope("test"),
    )


class Receiver(SpanExporter):
    """Gives an answer of one's own to each offer, told in terms of the very spans that it was given."""

    def __init__(self) -> None:
        self.offered: list[list[str]] = []
        """The names of the spans of each offer."""
        self.taken: list[str] = []
        """The names of all spans but those of offers that were answered by an exception."""
        self.answer: Callable[[Sequence[ReadableSpan]], None] = lambda spans: None
        """Raises what it has to say."""
        self.shutdowns = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Answer."""
        names = [span.name for span in spans]
        self.offered.append(names)
        self.answer(spans)
        self.taken += names
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Count it."""
        self.shutdowns += 1
