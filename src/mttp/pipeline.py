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
from mttp.codec.withholding import Withholding
from mttp.delivery import Delivery
from mttp.gate import Gate
from mttp.lane import Lane
from mttp.livespan import Ended
from mttp.losses import Loss, Losses
from mttp.sampling import Sampling
from mttp.stats import Stats, TransportStats
from mttp.veil import Veil

__all__ = ["Owner", "Pipeline"]

_log = logging.getLogger("mttp")

INTERVAL = 0.2
"""Seconds that an ended span waits at most before it is written."""
URGENT_BYTES = 512 * 1024
"""What has gathered is written at once when it reaches this."""


class Owner(Protocol):
    """Who has spans to add that nobody else records; called by whoever writes."""

    def mark(self) -> None:
        """Record what must not wait for the end of an episode."""

    def gap(self, loss: Loss, pipeline: Pipeline) -> None:
        """Record into `pipeline` that it lost something."""

    def ending(self) -> None:
        """Record the last there is; only the first call does."""


class Pipeline:
    """
    One transport's queue, and the thread that empties it.

    One lock, that of the session's counters, guards all of it; nobody else's code runs under it.
    """

    def __init__(
        self,
        lane: Lane,
        stats: TransportStats,
        owner: Owner,
        counters: Stats,
        sampling: Sampling | None = None,
    ) -> None:
        self.buffer_bytes = lane.buffer_bytes
        self.patience = lane.patience
        self.name, self.address = lane.name, lane.address
        self._close_timeout = lane.close_timeout
        self._deadline = 0.0
        self._stats = stats
        self._lock = counters.lock
        self._owner = owner
        self._changed = threading.Condition(self._lock)
        self._writing = threading.RLock()
        self._thread: threading.Thread | None = None
        self._writer = 0
        self._inbox: deque[Ended] = deque()
        self._inbox_bytes = 0
        self._gathered = Backlog()
        self._preparing = Backlog()
        self._veil = Veil(lane.withholding) if lane.withholding != Withholding() else None
        self._gate = Gate(sampling, stats) if sampling is not None and lane.sampled else None
        self._losses = Losses(stats)
        self._delivery = Delivery(lane, stats, self._losses, self._lock)
        self._waited: dict[int, float] = {}
        self._awake = self._closing = self._closed = False
        self._asked = self._answered = self._granted = self._given_up = 0

    # What recording calls.

    def put(self, span: Ended, *, last: bool = False) -> None:
        """
        Take an ended span; waits only while the buffer is full, and never long.

        One of the `last` is taken even from a session that is closing.
        """
        trace_id, mine, fits = span.identity.trace_id, threading.get_ident() == self._writer, True
        wanted = self._gate is not None and self._gate.judge(span)
        with self._lock:
            self._stats.recorded += 1
            if self._closed or (self._closing and not (mine or last)):
                self._stats.lose("session_closed", 1)
                return
            if trace_id in self._losses:
                self._losses.add(trace_id, [span])
                return
            for admitted in (span,) if self._gate is None else self._gate.admit(span, wanted=wanted):
                self._inbox.append(admitted)  # one step: a signal's handler may flush before or after it
                self._inbox_bytes += admitted.size
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

    def hurry(self) -> None:
        """Have written what there is without waiting for the interval."""
        with self._changed:
            if not self._closed and self._start():
                self._asked += 1
                self._changed.notify_all()

    def begin_close(self, timeout: float | None = None) -> None:
        """Take nothing more but the last; `timeout` in seconds, by default what the transport asks for."""
        with self._changed:
            self._closing = True
            self._deadline = time.monotonic() + (self._close_timeout if timeout is None else timeout)
            if threading.get_ident() != self._writer and self._start():
                self._changed.notify_all()

    def close(self) -> bool:
        """Have everything written, count what was not in time as lost, and release the transport."""
        if threading.get_ident() == self._writer:
            return False  # an exporter closes the session that calls it: the thread ends after this
        if self._thread is None:
            self._end()
        else:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, max(self._deadline - time.monotonic(), 0.0))
            if not self._closed:
                self._give_up()
                self._quietly(self._delivery.shutdown)  # what the thread still waits for is over
        return not self._given_up

    # A buffer that is full.

    def _fits(self) -> bool:
        used = self._inbox_bytes + self._gathered.bytes + self._preparing.bytes + self._delivery.bytes
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
                fresh, self._gathered = self._gathered, Backlog()
                self._preparing = fresh
            self._prepare(fresh)
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
                self._quietly(partial(self._owner.gap, loss, self))

    def _prepare(self, fresh: Backlog) -> None:
        """Make of what came in what the transport may have; then it waits to be offered."""
        if self._veil is not None:
            try:
                fresh.replace(self._veil)
            except Exception:  # nothing goes out that may not: it is lost instead
                _log.exception("mttp: what %s may have of the spans can't be told", self.address)
                with self._lock:
                    for trace_id in fresh.traces:
                        self._losses.add(trace_id, fresh.drop(trace_id), "withholding_failed")
        with self._lock:
            if fresh is self._preparing:  # else it took so long that it was given up
                self._preparing = Backlog()
                for trace_id in fresh.traces if self._losses else ():
                    if trace_id in self._losses:
                        self._losses.add(trace_id, fresh.drop(trace_id))
                self._delivery.waiting.extend(fresh)

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
        if not self._closed:
            self._quietly(self._owner.ending)
        if self._gate is not None:
            with self._lock:
                self._gate.close()
        with self._turn():
            fruitless = 0
            while not self._closed and fruitless < self._delivery.attempts:
                delivered, self._delivery.not_before = self._stats.delivered, 0.0
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
            left.extend(self._preparing)
            left.extend(self._gathered)
            self._preparing, self._gathered = Backlog(), Backlog()
            if left:
                self._stats.lose("write_failed", len(left.spans), episodes=left.episodes)
            self._given_up += len(left)
            self._closed = True
            self._changed.notify_all()

    def _quietly(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _log.exception("mttp: recording or closing failed")
