"""Keeps spans in the memory of this process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import unquote

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.profiles import full
from mttp.errors import TransportError
from mttp.model.spans import SpanRecord
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.span_records import record
from mttp.semconv import attributes as a
from mttp.transports.options import Positive, path_of, take, with_query

__all__ = ["MemoryTransport", "open"]


class MemoryTransport(SpanExporter):
    """
    Keeps spans by trace, without a limit unless `max_episodes` is set.

    Beyond `max_episodes` the oldest episodes are dropped whole, finished ones first; `evicted` counts them.
    Traces of other libraries have a limit of the same size; runs are always kept.
    """

    name = "memory"

    def __init__(self, *, max_episodes: Positive | None = None) -> None:
        self.max_episodes = max_episodes
        self.evicted = 0
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._traces: dict[int, list[SpanRecord | RecordingSpan]] = {}
        self._open: OrderedDict[int, None] = OrderedDict()
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._others: OrderedDict[int, None] = OrderedDict()
        self._refused: set[int] = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans; those of mttp are converted to records on reading."""
        kept = [span if isinstance(span, RecordingSpan) else record(span, full) for span in spans]
        with self._lock:
            for each in kept:
                self._keep(each)
            while self.max_episodes is not None and len(self._others) > self.max_episodes:
                del self._traces[self._others.popitem(last=False)[0]]
        return SpanExportResult.SUCCESS

    def _keep(self, kept: SpanRecord | RecordingSpan) -> None:
        if isinstance(kept, SpanRecord):
            trace_id, is_root, attributes = int(kept.trace_id, 16), not kept.parent_id, kept.attributes
        else:
            trace_id, is_root, attributes = kept.trace_id, kept.parent is None, kept.encoded
        if trace_id in self._refused:
            self._refused -= {trace_id} if is_root else set()
            return
        self._traces.setdefault(trace_id, []).append(kept)
        if trace_id in self._finished:
            return
        if a.EPISODE_ID in attributes:
            self._others.pop(trace_id, None)
            self._open[trace_id] = None
            if is_root:
                self._finished[trace_id] = self._open.pop(trace_id)
            self._evict()
        elif a.RUN_ID not in attributes and trace_id not in self._open:
            self._others[trace_id] = None

    def _evict(self) -> None:
        while self.max_episodes is not None and len(self._open) + len(self._finished) > self.max_episodes:
            if self._finished:
                oldest, _ = self._finished.popitem(last=False)
            else:
                oldest, _ = self._open.popitem(last=False)
                self._refused.add(oldest)  # its later spans alone would be a part of an episode
            del self._traces[oldest]
            self.evicted += 1

    def records(self) -> Iterator[SpanRecord]:
        """Iterate over the kept spans, trace by trace."""
        with self._lock:
            for trace in self._traces.values():
                trace[:] = [each if isinstance(each, SpanRecord) else each.as_record(full) for each in trace]
            kept = [cast(SpanRecord, each) for trace in self._traces.values() for each in trace]
        return iter(kept)

    def clear(self) -> None:
        """Drop all spans."""
        self._forget()

    def shutdown(self) -> None:
        """Do nothing: recorded spans stay readable."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` is synchronous."""
        return True

    def after_fork(self) -> None:
        """In a forked child: drop the parent's spans."""
        self._forget()

    def __repr__(self) -> str:
        return with_query("memory://", {"max_episodes": self.max_episodes} if self.max_episodes else {})


def open(address: str, options: Mapping[str, object]) -> MemoryTransport:
    """Open `memory://`, with the option `max_episodes`."""
    path = unquote(path_of(address))
    if path:
        raise TransportError(f"memory:// has no path, but {path!r} was given; write memory://")
    return MemoryTransport(**take(options, MemoryTransport))
