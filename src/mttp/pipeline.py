"""From ended spans to a transport: a queue, and a thread that drains it in segments."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.livespan import LiveSpan
from mttp.stats import Stats

__all__ = ["Pipeline", "Transport"]

_log = logging.getLogger("mttp")

INTERVAL = 0.2
"""Seconds that an ended span waits at most before it is written."""
SEGMENT_BYTES = 512 * 1024
"""What has gathered is written at once when it reaches this."""
BUFFER_BYTES = 256 * 1024 * 1024
"""What a transport that does not keep up may hold in memory."""
PATIENCE = 1.0
"""Seconds that a full buffer may hold up the caller, per episode."""


class Transport(Protocol):
    """Where segments go. The SDK's exporters have this shape too."""

    def export(self, spans: Sequence[ReadableSpan], /) -> SpanExportResult:
        """Take a segment, or say that it was not taken."""

    def shutdown(self) -> None:
        """Release what is held; nothing is exported afterwards."""


class Pipeline:
    """
    One transport's queue.

    `before` runs ahead of each segment (it records the markers of open episodes).
    `gap` makes the span that says what was lost.
    """

    def __init__(
        self,
        transport: Transport,
        stats: Stats,
        *,
        before: Callable[[], None],
        gap: Callable[[int, int, str], LiveSpan],
    ) -> None:
        self.transport = transport
        self.buffer_bytes = BUFFER_BYTES
        self.patience = PATIENCE
        self._stats = stats
        self._before = before
        self._gap = gap
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._space = threading.Condition(self._lock)
        self._drain_lock = threading.RLock()
        self._queue: deque[LiveSpan] = deque()
        self._bytes = 0
        self._waited: dict[int, float] = defaultdict(float)
        self._lost: dict[int, int] = {}
        self._gap_episodes = 0
        self._gap_spans = 0
        self._wake = threading.Event()
        self._now = threading.Event()
        self._closing = False
        self._failing = False
        self._thread: threading.Thread | None = None

    def after_fork(self, stats: Stats) -> None:
        """Start empty in a forked child: what was queued is the parent's to write."""
        self._stats = stats
        self._reset()

    def put(self, span: LiveSpan) -> None:
        """Queue an ended span; waits only while the buffer is full, and never long."""
        trace_id = span.identity.trace_id
        with self._lock:
            if trace_id in self._lost:
                self._lose(span)
                return
            self._queue.append(span)
            self._bytes += _size(span)
            full = self._bytes > self.buffer_bytes
            urgent = self._bytes > SEGMENT_BYTES
        self._start()
        self._wake.set()
        if urgent:
            self._now.set()
        if full and threading.current_thread() is not self._thread:
            self._throttle(trace_id)

    def wake(self) -> None:
        """Have the thread look for open episodes soon."""
        self._start()
        self._wake.set()

    def flush(self, timeout: float = 30.0) -> bool:
        """Write what is queued, on the calling thread; whether all of it was taken."""
        if not self._drain_lock.acquire(timeout=timeout):
            return False
        try:
            self._drain()
        finally:
            self._drain_lock.release()
        return not self._queue

    def close(self, timeout: float = 30.0) -> bool:
        """Write what is queued, count what can't be as lost, and stop."""
        self._closing = True
        self._wake.set()
        self._now.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        written = self.flush(timeout)
        with self._lock:
            traces = {span.identity.trace_id for span in self._queue}
            if self._queue:
                self._stats.lose("write_failed", spans=len(self._queue), episodes=len(traces))
            self._queue.clear()
        self.transport.shutdown()
        return written

    # The thread.

    def _start(self) -> None:
        if self._thread is None and not self._closing:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="mttp-flush", daemon=True)
                    self._thread = thread
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is going down: `close` writes on its own thread
                        self._thread = None
                        self._closing = True

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait()
            self._wake.clear()
            self._now.wait(INTERVAL)
            self._now.clear()
            with self._drain_lock:
                self._drain()
            if self._queue and not self._closing:  # the transport refused: look again, but not in a hurry
                self._now.wait(INTERVAL)
                self._wake.set()

    def _drain(self) -> None:
        try:
            self._before()
        except Exception:
            _log.exception("mttp: open episodes could not be marked")
        while self._queue and self._write_segment():
            pass

    def _write_segment(self) -> bool:
        segment = self._segment()
        if self._export(segment):
            self._taken(segment)
            return True
        return False

    def _segment(self) -> list[LiveSpan]:
        """The oldest spans, up to a segment's size, those of one episode side by side."""
        size, segment = 0, []
        with self._lock:
            for span in self._queue:
                segment.append(span)
                size += _size(span)
                if size >= 4 * SEGMENT_BYTES:
                    break
        order: dict[int, list[LiveSpan]] = {}
        for span in segment:
            order.setdefault(span.identity.trace_id, []).append(span)
        return [span for spans in order.values() for span in spans]

    def _export(self, segment: Sequence[LiveSpan]) -> bool:
        try:
            taken = self.transport.export(self._with_gap(segment)) is SpanExportResult.SUCCESS
            reason = "the transport refused them"
        except Exception as error:
            taken, reason = False, repr(error)
        if not taken and not self._failing:
            _log.warning(
                "mttp: %d spans could not be written and are kept for later: %s", len(segment), reason
            )
        elif taken and self._failing:
            _log.warning("mttp: writing works again")
        self._failing = not taken
        return taken

    def _taken(self, segment: Sequence[LiveSpan]) -> None:
        written = set(map(id, segment))
        with self._space:
            kept = [span for span in self._queue if id(span) not in written]
            lost_meanwhile = len(segment) - (len(self._queue) - len(kept))
            self._queue = deque(kept)
            self._bytes = sum(map(_size, kept))
            self._space.notify_all()
        self._stats.add(delivered=len(segment) - lost_meanwhile)

    def _with_gap(self, segment: Sequence[LiveSpan]) -> Sequence[LiveSpan]:
        with self._lock:
            spans, episodes = self._gap_spans, self._gap_episodes
            self._gap_spans = self._gap_episodes = 0
        return [self._gap(episodes, spans, "buffer_full"), *segment] if spans else segment

    # A buffer that is full.

    def _throttle(self, trace_id: int) -> None:
        started = time.monotonic()
        with self._space:
            allowance = self.patience - self._waited[trace_id]
            self._space.wait_for(lambda: self._bytes <= self.buffer_bytes, timeout=max(allowance, 0.0))
            waited = time.monotonic() - started
            self._waited[trace_id] += waited
            if self._bytes > self.buffer_bytes:
                self._abandon(trace_id)
        self._stats.add(blocked_seconds=waited)

    def _abandon(self, trace_id: int) -> None:
        """Lose the whole episode rather than some of its steps."""
        mine = [span for span in self._queue if span.identity.trace_id == trace_id]
        self._queue = deque(span for span in self._queue if span.identity.trace_id != trace_id)
        self._bytes = sum(map(_size, self._queue))
        self._lost[trace_id] = 0
        self._gap_episodes += 1
        self._stats.lose("buffer_full", spans=0, episodes=1)
        if not any(span.parent is None for span in mine):
            self._lost[trace_id] = 1
        for span in mine:
            self._lose(span)
        if self._gap_episodes == 1:
            _log.warning(
                "mttp: the buffer is full (%d bytes); whole episodes are lost, and counted", self._bytes
            )

    def _lose(self, span: LiveSpan) -> None:
        self._gap_spans += 1
        self._stats.lose("buffer_full", spans=1)
        if span.parent is None:  # the episode is over: nothing more of it comes
            self._lost.pop(span.identity.trace_id, None)
            self._waited.pop(span.identity.trace_id, None)


def _size(span: LiveSpan) -> int:
    """Roughly what the span takes in a file: arrays exactly, the rest by rule of thumb."""
    size = 400
    for value in span.values.values():
        if isinstance(value, np.ndarray):
            size += value.nbytes
        elif isinstance(value, (str, bytes, list)):
            size += len(value)
        size += 60
    return size
