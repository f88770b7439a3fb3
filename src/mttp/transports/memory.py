"""Keeps spans in the memory of this process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import unquote

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.errors import TransportError
from mttp.model.spans import Scope, SpanRecord
from mttp.otlp.frames import SCOPES, Frame, record
from mttp.otlp.spans.span_records import framed
from mttp.transports.export_target import taking_frames
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
        self._traces: dict[int, list[Frame | SpanRecord]] = {}
        self._scopes: dict[int, Scope] = {}
        """The scopes of frames, which are kept with them."""
        self._open: OrderedDict[int, None] = OrderedDict()
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._others: OrderedDict[int, None] = OrderedDict()
        self._refused: set[int] = set()

    @taking_frames
    def export(self, spans: Sequence[ReadableSpan | Frame]) -> SpanExportResult:
        """Keep the spans as frames, which are converted to records on reading."""
        frames = list(map(framed, spans))
        with self._lock:
            for frame in frames:
                self._keep(frame)
            while self.max_episodes is not None and len(self._others) > self.max_episodes:
                del self._traces[self._others.popitem(last=False)[0]]
        return SpanExportResult.SUCCESS

    def _keep(self, frame: Frame) -> None:
        trace_id = frame.trace_id
        scope = self._scopes.setdefault(frame.scope, SCOPES[frame.scope])
        if trace_id in self._refused:
            self._refused -= {trace_id} if frame.is_last else set()
            return
        self._traces.setdefault(trace_id, []).append(frame)
        if trace_id in self._finished:
            return
        if frame.of_episode:
            self._others.pop(trace_id, None)
            self._open[trace_id] = None
            if frame.is_last:
                self._finished[trace_id] = self._open.pop(trace_id)
            self._evict()
        elif scope.name != "mttp" and trace_id not in self._open:
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
                trace[:] = [record(each) if isinstance(each, Frame) else each for each in trace]
            records = [cast(SpanRecord, each) for trace in self._traces.values() for each in trace]
        return iter(records)

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
