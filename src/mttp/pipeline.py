"""From ended spans to a transport: a thread that writes what has gathered, several times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from opentelemetry import context as otel_context

from mttp.backlog import Backlog
from mttp.delivery import REFUSALS, Delivery, Transport
from mttp.livespan import LiveSpan
from mttp.losses import Loss, Losses
from mttp.stats import Stats

__all__ = ["Owner", "Pipeline", "Transport"]

_log = logging.getLogger("mttp")

INTERVAL = 0.2
"""Seconds that an ended span waits at most before it is written."""
URGENT_BYTES = 512 * 1024
"""What has gathered is written at once when it reaches this."""
BUFFER_BYTES = 256 * 1024 * 1024
"""What a transport that does not keep up may hold in memory."""
PATIENCE = 1.0
"""Seconds that a full buffer may hold up the caller, per episode."""


class Owner(Protocol):
    """Who has spans to add that nobody else records; called by whoever writes."""

    def mark(self) -> None:
        """Record what must not wait for the end of an episode."""

    def gap(self, loss: Loss) -> None:
        """Record that something was lost."""

    def ending(self) -> None:
        """Record the last there is."""


class Pipeline:
    """
    One transport's queue, and the thread that empties it.

    One lock, that of the counters, guards all of it; nobody else's code runs under it.
    """

    def __init__(self, transport: Transport, stats: Stats, owner: Owner) -> None:
        self.buffer_bytes = BUFFER_BYTES
        self.patience = PATIENCE
        self._stats = stats
        self._owner = owner
        self._changed = threading.Condition(stats.lock)
        self._writing = threading.RLock()
        self._thread: threading.Thread | None = None
        self._writer = 0
        self._inbox: deque[LiveSpan] = deque()
        self._inbox_bytes = 0
        self._gathered = Backlog()
        self._losses = Losses(stats)
        self._delivery = Delivery(transport, stats, self._losses)
        self._waited: dict[int, float] = {}
        self._awake = self._closing = self._closed = False
        self._asked = self._answered = self._granted = self._given_up = 0

    # What recording calls.

    def put(self, span: LiveSpan) -> None:
        """Take an ended span; waits only while the buffer is full, and never long."""
        trace_id, mine, fits = span.identity.trace_id, threading.get_ident() == self._writer, True
        with self._stats.lock:
            self._stats.spans += 1
            if self._closed or (self._closing and not mine):
                self._stats.lose("session_closed", 1)
                return
            if trace_id in self._losses:
                self._losses.add(trace_id, [span])
                return
            self._inbox.append(span)  # one step: a signal's handler may flush right before or after it
            self._inbox_bytes += span.size
            if not self._awake or self._inbox_bytes > URGENT_BYTES:
                self.wake()
            if not mine and not self._fits():
                fits = self._throttle(trace_id)
            if span.parent is None and self._waited:
                self._waited.pop(trace_id, None)
            if self._closed:  # by a signal's handler, just now
                self._give_up()
            alone = self._thread is None and not mine and self._hurried()
        if not fits:
            self._losses.log()
        if alone:
            self._write()

    def wake(self) -> None:
        """Have what there is written within the interval, or at once where it is much."""
        with self._changed:
            if not self._closed and (not self._awake or self._hurried()):
                self._awake = self._start()
                self._changed.notify_all()

    def flush(self, timeout: float = 30.0) -> bool:
        """Have everything written that has ended; whether it was within `timeout` seconds."""
        if threading.get_ident() == self._writer:
            return False
        with self._changed:
            if self._closed:
                return not self._given_up
            self._asked += 1
            ticket = self._asked
            threaded = self._start()
            self._changed.notify_all()
            if threaded:
                self._changed.wait_for(lambda: self._answered >= ticket or self._closed, timeout)
        if not threaded:
            self._write()
        return self._granted >= ticket

    def close(self, timeout: float = 30.0) -> bool:
        """Have everything written, count what was not within `timeout` as lost, and release the transport."""
        with self._changed:
            self._closing = True
            if threading.get_ident() == self._writer:
                return False  # an exporter closes the session that calls it: the thread ends after this
            threaded = self._start()
            self._changed.notify_all()
            if threaded:
                self._changed.wait_for(lambda: self._closed, timeout)
        if not threaded:
            self._end()
        self._give_up()
        return not self._given_up

    # A buffer that is full.

    def _fits(self) -> bool:
        used = self._inbox_bytes + self._gathered.bytes + self._delivery.bytes
        return self._closing or used <= self.buffer_bytes

    def _throttle(self, trace_id: int) -> bool:
        """Wait for space, as long as this episode still may; without it, lose the whole episode."""
        if self._thread is None:
            return True
        started, waited = time.monotonic(), self._waited.get(trace_id, 0.0)
        fits = self._changed.wait_for(self._fits, max(self.patience - waited, 0.0))
        spent = time.monotonic() - started
        self._waited[trace_id] = waited + spent
        self._stats.blocked_seconds += spent
        if not fits:
            self._waited.pop(trace_id, None)
            self._gather()
            lost = self._delivery.waiting.drop(trace_id) + self._gathered.drop(trace_id)
            if lost:
                self._losses.add(trace_id, lost, "buffer_full")
        return fits

    def _gather(self) -> None:
        """Sort what came in."""
        for _ in range(len(self._inbox)):
            span = self._inbox.popleft()
            self._inbox_bytes -= span.size
            self._gathered.add(span)

    # The thread.

    def _start(self) -> bool:
        """Whether there is a thread that writes; at the interpreter's end there may not be."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mttp-flush", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
        return self._thread is not None

    def _run(self) -> None:
        while self._wait():
            self._quietly(self._write)
        self._end()

    def _wait(self) -> bool:
        """Sleep until there is something to write, then a little longer for more to come; False to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._awake or self._hurried())
            self._changed.wait_for(self._hurried, INTERVAL)
            return not self._closing

    def _hurried(self) -> bool:
        much = self._inbox_bytes + self._gathered.bytes > URGENT_BYTES and not self._delivery.failing
        return much or self._closing or self._asked > self._answered

    def _write(self) -> None:
        """Write what there is now; what comes meanwhile is for the next time."""
        with self._turn():
            self._awake = False  # ahead of looking, so that whoever wakes us from here on is heard
            self._quietly(self._owner.mark)
            with self._changed:
                ticket = self._asked
                self._gather()
                self._delivery.waiting.extend(self._gathered)
                self._gathered = Backlog()
            while self._delivery.waiting and self._delivery.offer():
                with self._changed:
                    self._changed.notify_all()
            self._losses.log()
            with self._changed:
                written = not self._delivery.waiting
                self._awake = self._awake or not written
                self._answered, self._granted = ticket, ticket if written else self._granted
                losses = [] if self._delivery.failing else self._losses.tell()
                self._changed.notify_all()
            for loss in losses:
                self._quietly(partial(self._owner.gap, loss))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One writes at a time; what is recorded meanwhile neither waits for space nor is traced."""
        with self._writing:
            outer, self._writer = self._writer, threading.get_ident()
            silent = otel_context.set_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY, True)
            token = otel_context.attach(silent)
            try:
                yield
            finally:
                otel_context.detach(token)
                self._writer = outer

    def _end(self) -> None:
        """Write the rest, as long as the transport takes anything of it."""
        with self._turn():
            fruitless = 0
            if not self._closed:
                self._quietly(self._owner.ending)
            while not self._closed and fruitless < REFUSALS:
                delivered = self._stats.delivered
                self._quietly(self._write)
                if not self._inbox and not self._delivery.waiting:
                    break
                fruitless = 0 if self._stats.delivered > delivered else fruitless + 1
            self._quietly(self._delivery.shutdown)
        self._give_up()

    def _give_up(self) -> None:
        """Count what is left as lost."""
        with self._changed:
            self._gather()
            left = self._delivery.give_up()
            left.extend(self._gathered)
            self._gathered = Backlog()
            if left:
                self._stats.lose("write_failed", len(left.spans), episodes=len(left))
            self._given_up += len(left)
            self._closed = True
            self._changed.notify_all()

    def _quietly(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _log.exception("mttp: recording or closing failed")
