"""A queue of ended spans, by trace."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain

from mttp.otlp.spans import Arrival

__all__ = ["SpanQueue"]


class SpanQueue:
    """Spans by trace, oldest trace first, so that the spans of an episode are exported together."""

    def __init__(self) -> None:
        self._traces: OrderedDict[int, list[Arrival]] = OrderedDict()
        self.bytes = 0
        """Approximate size of the spans in a file."""

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._traces)

    @property
    def spans(self) -> list[Arrival]:
        """All spans, trace by trace."""
        return list(chain.from_iterable(self._traces.values()))

    @property
    def traces(self) -> list[int]:
        """The trace ids, oldest first."""
        return list(self._traces)

    def add(self, span: Arrival) -> None:
        """Add a span."""
        trace_id = span.trace_id
        known = self._traces.get(trace_id)
        if known is None:
            known = self._traces[trace_id] = []
        known.append(span)
        self.bytes += span.size

    def extend(self, other: SpanQueue) -> None:
        """Add the spans of another queue."""
        for trace_id, spans in other._traces.items():
            self._traces.setdefault(trace_id, []).extend(spans)
        self.bytes += other.bytes

    def take(self, max_bytes: int, *, traces: int | None = None) -> SpanQueue:
        """Remove and return the first spans: about `max_bytes`, of at most `traces` traces."""
        taken = SpanQueue()
        while self._traces and taken.bytes < max_bytes and (traces is None or len(taken) < traces):
            trace_id, spans = self._traces.popitem(last=False)
            count, size = 0, 0
            while count < len(spans) and (size < max_bytes - taken.bytes):
                size += spans[count].size
                count += 1
            taken._traces[trace_id] = spans[:count]
            taken.bytes += size
            self.bytes -= size
            if count < len(spans):
                self._traces[trace_id] = spans[count:]
                self._traces.move_to_end(trace_id, last=False)
        return taken

    def put_back(self, taken: SpanQueue) -> None:
        """Return failed spans to the end of the queue: they may be the cause of the failure."""
        for trace_id, spans in taken._traces.items():
            self._traces[trace_id] = spans + self._traces.pop(trace_id, [])
        self.bytes += taken.bytes

    def of(self, trace_id: int) -> list[Arrival]:
        """The spans of a trace."""
        return self._traces[trace_id]

    def replace(self, trace_id: int, spans: Sequence[Arrival]) -> None:
        """Replace the spans of a trace."""
        self.bytes += sum(span.size for span in spans) - sum(span.size for span in self._traces[trace_id])
        self._traces[trace_id] = [*spans]

    def drop(self, trace_id: int) -> list[Arrival]:
        """Remove and return the spans of a trace."""
        spans = self._traces.pop(trace_id, [])
        self.bytes -= sum(span.size for span in spans)
        return spans
