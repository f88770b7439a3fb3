"""The pipeline of one transport: an inbox of ended spans and the background thread that exports them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from opentelemetry import context as otel_context

from mttp.codec import episodes
from mttp.codec.withholding import Withholding
from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.otlp import frames
from mttp.otlp.encoding import encoder
from mttp.otlp.frames import Frame
from mttp.otlp.spans import Ended, traced
from mttp.otlp.step_columns import packed, spread
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline.content_filter import ContentFilter
from mttp.transports.pipeline.export_retry import ExportRetry, traces
from mttp.transports.pipeline.losses import Loss, Losses
from mttp.transports.pipeline.tail_sampler import TailSampler
from mttp.transports.sampling import Sampling
from mttp.transports.stats import Stats, TransportStats

__all__ = ["Pipeline", "PipelineOwner"]


INTERVAL = 0.2
"""The longest that an ended span waits before it is exported, in seconds."""
DISK_SECONDS = 0.2
"""Seconds of exporting spans from disk after which newer ones are taken from the inbox."""
URGENT_BYTES = 2**20
"""Inbox size in bytes from which spans are exported at once."""
RELIEF_BYTES, PART_BYTES = 4 * 2**20, 2**17
"""Bytes that wait from which a caller encodes a part of the inbox itself, and the bytes of the part."""


class _Here(threading.local):
    """State of the current thread."""

    writes = False
    """Whether the thread is exporting from any pipeline: it then never waits for one."""


_here = _Here()
RESTS = (0.2, 0.4, 0.8)
"""Seconds between the last attempts while closing."""
HELPER_SECONDS, HELPER_SHARE = 2.0, 1 / 3
"""The longest wait for the encoding process, in seconds and as a share of the time left."""


class PipelineOwner(Protocol):
    """The session as a pipeline sees it: it adds start markers, gap records and the last spans."""

    def ended(self, span: Ended) -> None:
        """Take an ended span at any time, also while closing."""

    def mark(self) -> None:
        """Record start markers of open episodes and flush packed steps."""

    def wrote(self) -> None:
        """Called after each export."""

    def gap(self, loss: Loss, pipeline: Pipeline) -> None:
        """Record into `pipeline` that it lost spans."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and log the first of its kind."""

    def ending(self) -> None:
        """Record the last spans; later calls do nothing."""


class Pipeline:
    """
    One transport's inbox, and the background thread that exports from it.

    The lock of the session's counters guards the state; no exporter or user code runs under it.
    """

    def __init__(
        self,
        target: ExportTarget,
        stats: TransportStats,
        owner: PipelineOwner,
        counters: Stats,
        sampling: Sampling | None = None,
    ) -> None:
        self.buffer_bytes = target.buffer_bytes
        self.max_block_seconds = target.max_block_seconds
        self.name, self.address = target.name, target.address
        self._close_timeout = target.close_timeout
        self._deadline = 0.0
        self._stats = stats
        self._lock = counters.lock
        self._owner = owner
        self._changed = threading.Condition(self._lock)
        self._writing = threading.RLock()
        self._thread: threading.Thread | None = None
        self._writer = 0
        self._inbox: deque[Frame] = stats.arrivals
        self._inbox_bytes = 0
        self.easy = False
        """Whether a span may be appended with no check but `_room`."""
        self._room = 0
        """Inbox size in bytes at which `_check_capacity` is due."""
        self._relieved = 0
        """Number of frames at the head of the inbox that callers have encoded."""
        self._relieving = False
        self._drains = 0
        """Number of times that the inbox was emptied."""
        self._preparing: deque[Frame] = deque()
        """Spans that were taken from the inbox and are not yet queued for export."""
        self._preparing_bytes = 0
        self._takes_columns, self._names_outcomes = target.takes_columns, target.names_outcomes
        has_filter = target.withholding != Withholding()
        self._content_filter = ContentFilter(target.withholding, owner.fault) if has_filter else None
        writes_lines = target.writes_lines and target.takes_frames and not has_filter
        self._relieves = writes_lines and (sampling is None or not target.sampled)
        """Whether callers encode a part of what waits."""
        self._sampler = TailSampler(sampling, stats) if sampling is not None and target.sampled else None
        self._losses = Losses(stats)
        self._retry = ExportRetry(target, stats, self._losses, self._lock)
        self._waited: dict[int, float] = {}
        self._awake = self._closing = self._closed = False
        self._is_behind = False
        """Whether spans are left on disk that the transport accepts."""
        self._given_up = 0
        self._asked = self._answered = self._granted = 0
        """Numbers of requests to export at once: the last, the last answered, and the last that succeeded."""
        self._lost_before = 0
        """Lost spans at the last answer."""

    # What recording calls.

    def take(self, span: Ended) -> None:
        """Take an ended span of a session with one pipeline; the fast path of `put`."""
        if not self.easy:
            self._owner.ended(span)
            return
        frame = span.frame()
        if not self.put(frame):
            self.hold_up(frame, clock.seconds())

    def put(self, frame: Frame, *, last: bool = False) -> bool:
        """
        Take an ended span and return whether the buffer has space; if not, the caller calls `hold_up`.

        A `last` span is taken while the session closes, and needs no space.
        """
        if self.easy and not last:
            self._inbox.append(frame)
            self._inbox_bytes += len(frame)  # a lost update is made good when the inbox is emptied
            if self._inbox_bytes < self._room and self.easy:  # which may have changed by now
                return True
            return self._check_capacity(frame)
        trace_id, last = frame.trace_id, last or _here.writes
        with self._lock:
            if self._closed or (self._closing and not last):
                self._stats.taken += 1
                self._losses.leave(trace_id, [frame], "session_closed")
                return True
            if trace_id in self._losses:
                self._stats.taken += 1
                self._losses.add(trace_id, [frame])
                return True
            self._inbox.append(frame)  # one step: a signal's handler may flush before or after it
            self._inbox_bytes += len(frame)
            return self._check_capacity(frame, is_exempt=last)

    def _check_capacity(self, frame: Frame, *, is_exempt: bool = False) -> bool:
        """Wake the thread if needed and return whether the buffer has space for a span."""
        with self._lock:
            if not self._awake or self._inbox_bytes > URGENT_BYTES:
                self.wake()
            fits = self._fits() or is_exempt or _here.writes or self._thread is None
            if fits and frame.is_last and self._waited:
                self._waited.pop(frame.trace_id, None)
            if self._closed:  # by another thread, or a signal's handler, just now
                self._give_up()
            self._ease()
            is_much = self._relieves and self._stats.waiting_bytes > RELIEF_BYTES
            part = self._part() if is_much and self._relieved < len(self._inbox) else None
            alone = self._thread is None and not _here.writes and self._hurried()
        if alone:
            self._write()
        elif part is not None:
            self._relieve(*part)
        return fits

    def _part(self) -> tuple[int, Sequence[Frame]] | None:
        """Return how often the inbox was emptied, and its next spans to encode. Called under the lock."""
        if self._relieving or _here.writes:
            return None
        self._relieving = True
        part: list[Frame] = []
        size, place, count = 0, self._relieved, len(self._inbox)
        while size < PART_BYTES and place < count:
            part.append(self._inbox[place])
            size += len(part[-1])
            place += 1
        return self._drains, part

    def _relieve(self, drains: int, part: Sequence[Frame]) -> None:
        """Encode spans of the inbox, which stay there meanwhile."""
        try:
            encoded = frames.encoded(part)
            with self._lock:
                if self._drains != drains:  # the inbox was emptied meanwhile
                    return
                for place, frame in enumerate(encoded, self._relieved):
                    self._inbox_bytes += len(frame) - len(self._inbox[place])
                    self._inbox[place] = frame
                self._relieved += len(part)
        except Exception as error:  # the background thread finds out why
            raise_interrupt(error)
        finally:
            self._relieving = False

    def _ease(self) -> None:
        """Update `easy`. Called under the lock."""
        self.easy = (
            self._awake and self._thread is not None and not (self._closing or self._closed or self._waited)
        )

    def hold_up(self, frame: Frame, since: float) -> None:
        """
        Block until the buffer has space, up to `max_block_seconds` per episode; else drop the episode.

        `since` is the monotonic time when the caller was first blocked: other transports' waits count too.
        """
        trace_id = frame.trace_id
        with self._lock:
            fits = self._throttle(trace_id, since)
            if frame.is_last:
                self._waited.pop(trace_id, None)
        if not fits:
            self._losses.log()

    def wake(self) -> None:
        """Have the inbox exported within `INTERVAL`, or at once above `URGENT_BYTES`."""
        if self.easy and self._inbox_bytes <= URGENT_BYTES:
            return
        with self._changed:
            if not self._closed and (not self._awake or self._hurried()):
                self._awake = self._start()
                self._ease()
                self._changed.notify_all()

    def ask(self) -> int:
        """Request an export without waiting for `INTERVAL`; return a ticket for `answer`."""
        with self._changed:
            if not self._closed:
                self._asked += 1
                self._start()
                self._changed.notify_all()
            return self._asked

    def answer(self, ticket: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return whether every span that had ended by `ask` was delivered."""
        if _here.writes:
            return False  # called by an exporter: waiting for itself would deadlock
        with self._changed:
            if self._thread is not None:
                clock.wait_for(self._changed, lambda: self._answered >= ticket or self._closed, timeout)
            alone = self._thread is None and not self._closed
        if alone:
            self._write()
        return self._granted >= ticket or (self._closed and self._delivered_all())

    def begin_close(self, timeout: float | None = None) -> None:
        """
        Take only last spans from now on; `timeout` is in seconds and defaults to that of the target.

        Of several calls the earliest deadline holds.
        """
        with self._changed:
            if self._closed:
                return
            deadline = clock.seconds() + (self._close_timeout if timeout is None else timeout)
            self._deadline = min(self._deadline, deadline) if self._closing else deadline
            self._closing, self.easy = True, False
            if threading.get_ident() != self._writer and self._start():
                self._changed.notify_all()

    def close(self) -> bool:
        """Export the remaining spans until the deadline of `begin_close`; return whether all arrived."""
        if _here.writes:
            return False  # an exporter closes the session that calls it: the threads end after this
        if self._thread is None:
            self._end()
        else:
            with self._changed:
                self._await(lambda: self._closed, self._deadline - clock.seconds())
            if not self._closed:
                self._quietly(self._spill)
                self._give_up()
                self._release()
        return self._delivered_all()

    def _delivered_all(self) -> bool:
        """Whether nothing was lost or waits on disk; spans that ended after the session do not count."""
        with self._lock:
            is_complete = not self._given_up and not self._stats.spooled
            return is_complete and self._stats.lost.total() == self._stats.lost["session_closed"]

    def _spill(self) -> None:
        """Move the spans that wait for a transport that hangs to its spool, if it has one."""
        if not self._retry.has_disk:
            return
        with self._lock:
            if self._preparing:  # filtering hangs: unfiltered spans must not be written
                return
            fresh = self._drain()
        self._prepare(fresh)
        self._retry.take_back()
        self._retry.spill()

    def _release(self) -> None:
        """Shut down a transport that hangs, on a thread that is not waited for."""
        release = threading.Thread(
            target=self._quietly, args=(self._retry.shutdown,), name="mttp-release", daemon=True
        )
        with suppress(RuntimeError):  # no thread can start at interpreter exit
            release.start()

    # A buffer that is full.

    def _fits(self) -> bool:
        return self._weigh() <= self.buffer_bytes or self._closing

    def _weigh(self) -> int:
        others = self._preparing_bytes + self._retry.bytes
        free = self.buffer_bytes - others
        if self._inbox_bytes <= URGENT_BYTES:
            self._room = min(URGENT_BYTES, free)
        elif self._relieves:
            self._room = min(max(RELIEF_BYTES - others, self._inbox_bytes + PART_BYTES), free)
        else:
            self._room = free
        self._stats.waiting_bytes = used = self._inbox_bytes + others
        return used

    def _throttle(self, trace_id: int, since: float) -> bool:
        """Wait for space within the time left to this episode; without space, drop the whole episode."""
        started, waited = clock.seconds(), self._waited.get(trace_id, 0.0)
        fits = self._await(self._fits, self.max_block_seconds - waited - (started - since))
        now = clock.seconds()
        self._waited[trace_id], self.easy = waited + now - since, False
        self._stats.blocked_seconds += now - started
        if not fits:
            lost = self._retry.queue.drop(trace_id) + self._drop(trace_id)
            if lost:
                self._waited.pop(trace_id)
                self._losses.add(trace_id, lost, self._retry.spool_cause or "buffer_full")
        return fits

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        """
        Wait for a condition and return whether it holds. Called under the lock.

        An encoding process that is silent for a share of `seconds` is killed; its spans are encoded here.
        """
        until, helper_seconds = clock.seconds() + seconds, min(seconds * HELPER_SHARE, HELPER_SECONDS)
        while not (holds := condition()) and (left := until - clock.seconds()) > 0:
            self._changed.wait(min(left, helper_seconds / 2))
            encoder.hurry(helper_seconds)
        return holds

    def _drain(self) -> deque[Frame]:
        """Take all spans from the inbox to prepare them; a signal handler may do so at any time."""
        fresh = self._preparing = deque(self._taken())
        self._preparing_bytes = sum(map(len, fresh))
        return fresh

    def _drop(self, trace_id: int) -> list[Frame]:
        """Remove and return the spans of a trace from the inbox."""
        dropped: list[Frame] = []
        for frame in self._taken():
            if frame.trace_id == trace_id:
                dropped.append(frame)
            else:
                self._stats.taken -= 1
                self._inbox.append(frame)
                self._inbox_bytes += len(frame)
        return dropped

    def _taken(self) -> Iterator[Frame]:
        """Take the spans that are in the inbox now, and count them."""
        self._drains += 1
        self._relieved = 0
        for _ in range(len(self._inbox)):
            try:
                frame = self._inbox.popleft()
            except IndexError:  # a signal's handler took the rest
                break
            self._stats.taken += 1
            self._inbox_bytes -= len(frame)
            yield frame
        if not self._inbox:
            self._inbox_bytes = 0

    # The thread.

    def _start(self) -> bool:
        """Start the background thread; return whether it runs. None can start at interpreter exit."""
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
        """Sleep until there are spans, then up to `INTERVAL` for more; return False to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._awake or self._hurried())
            clock.wait_for(self._changed, self._hurried, INTERVAL)
            return not self._closing

    @property
    def _is_asked(self) -> bool:
        return self._asked > self._answered

    def _hurried(self) -> bool:
        much = self._inbox_bytes > URGENT_BYTES and not self._retry.failing
        return much or self._is_behind or self._closing or self._is_asked

    def _write(self) -> None:
        """Export the spans of now; later ones wait for the next call."""
        with self._turn():
            with self._lock:  # before gathering, so that a wake from here on counts
                self._awake = self.easy = False
            self._quietly(self._owner.mark)
            with self._changed:
                ticket = self._asked
                fresh = self._drain()
                self._weigh()
            self._prepare(fresh)
            is_done = self._export()
            self._losses.log()
            self._quietly(self._owner.wrote)
            has_work = self._retry.has_work
            with self._changed:
                self._awake = self._awake or has_work
                self._is_behind = has_work and not self._retry.failing
                if is_done and ticket > self._answered:
                    lost = self._stats.lost.total()
                    if not self._retry.has_own and lost == self._lost_before:
                        self._granted = ticket
                    self._answered, self._lost_before = ticket, lost
                self._weigh()
                losses = [] if self._retry.failing else self._losses.unreported()
                self._changed.notify_all()
            for loss in losses:
                self._quietly(partial(self._owner.gap, loss, self))

    def _export(self) -> bool:
        """
        Export what waits; return False if time ran out before all spans of this process were exported.

        Spans on disk may be many: after `DISK_SECONDS`, newer ones are taken from the inbox.
        """
        until = float("inf")
        while self._retry.has_work:
            if not self._retry.offer(at_once=self._closing or self._is_asked):
                return True
            with self._changed:
                self._changed.notify_all()
            if not self._retry.queue:
                now = clock.seconds()
                until = min(until, now + DISK_SECONDS)
                if now > until:
                    return not self._retry.has_own
        return True

    def _prepare(self, fresh: deque[Frame]) -> None:
        """Sample, filter and pack new spans, then queue them for export, trace by trace."""
        if self._sampler is not None:
            self._sample(self._sampler, fresh)
        prepared = [(trace_id, spans, self._prepared(spans)) for trace_id, spans in traces(fresh).items()]
        with self._lock:
            if fresh is not self._preparing:  # it took so long that it was given up
                return
            self._preparing, self._preparing_bytes = deque(), 0
            for trace_id, spans, outcome in prepared:
                if isinstance(outcome, Exception):
                    self._leave_out(trace_id, spans, outcome)
                    continue
                self._stats.taken += len(outcome) - len(spans)
                if trace_id in self._losses:
                    self._losses.add(trace_id, outcome)
                else:
                    self._retry.queue.extend(outcome)

    def _sample(self, sampler: TailSampler, fresh: deque[Frame]) -> None:
        """Replace new spans with those that are to be exported."""
        for _ in range(len(fresh)):
            is_wanted = sampler.judge(fresh[0])
            with self._lock:
                if fresh is not self._preparing:
                    return
                fresh.extend(sampler.admit(fresh.popleft(), wanted=is_wanted))

    def _prepared(self, spans: Sequence[Frame]) -> Sequence[Frame] | Exception:
        """Return the spans of one trace filtered, with steps arranged for the transport, or the error."""
        try:
            trace_spans = spans if self._takes_columns else spread(spans)
            if self._content_filter is not None:
                trace_spans = list(map(self._content_filter, trace_spans))
            arranged = packed(trace_spans, takes_columns=self._takes_columns)
            return list(map(_with_outcome, arranged)) if self._names_outcomes else arranged
        except Exception as error:
            raise_interrupt(error)
            return error

    def _leave_out(self, trace_id: int, spans: Sequence[Frame], error: Exception) -> None:
        """Drop spans that can't be filtered."""
        if not self._stats.lost["withholding_failed"]:
            what = "mttp: filtering an episode for %s failed, and the episode is dropped: %s"
            log.error(what, self.address, traced(error))
        self._losses.add(trace_id, spans, "withholding_failed")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the export lock; spans recorded meanwhile neither wait for space nor are traced."""
        with self._writing:
            outer, self._writer = (self._writer, _here.writes), threading.get_ident()
            _here.writes = True
            silent = otel_context.set_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY, True)
            token = otel_context.attach(silent)
            try:
                yield
            finally:
                otel_context.detach(token)
                self._writer, _here.writes = outer

    def _end(self) -> None:
        """Export the rest, as long as the transport accepts any of it."""
        if not self._closed:
            self._quietly(self._owner.ending)
        with self._turn():
            fruitless = 0
            while not self._closed and fruitless <= len(RESTS):
                exported, self._retry.not_before = self._retry.exported, 0.0
                self._quietly(self._write)
                if not self._inbox and not self._retry.has_work:
                    break
                if not self._retry.queue and clock.seconds() > self._deadline:
                    break  # the rest is on disk
                fruitless = 0 if self._retry.exported > exported else fruitless + 1
                if fruitless and not self._rest(fruitless):
                    break
            self._quietly(self._retry.spill)
            self._quietly(self._retry.shutdown)
        self._give_up()

    def _rest(self, fruitless: int) -> bool:
        """Wait before the next attempt; return False where that exceeds the deadline."""
        now = clock.seconds()
        if fruitless > len(RESTS) or self._retry.not_before > self._deadline:
            return False
        until = min(max(now + RESTS[fruitless - 1], self._retry.not_before), self._deadline)
        with self._changed:
            clock.wait_for(self._changed, lambda: self._closed, until - now)
        return clock.seconds() < self._deadline

    def _give_up(self) -> None:
        """Count the remaining spans as lost: `session_closed` if there was no time for them."""
        with self._changed:
            left = traces([*self._retry.give_up(), *self._preparing, *self._taken()])
            self._preparing, self._preparing_bytes = deque(), 0
            self._given_up += len(left)
            cause = "write_failed" if self._retry.failing else "session_closed"
            cause = self._retry.spool_cause or cause
            for trace_id, spans in left.items():
                self._losses.leave(trace_id, spans, cause)
            if self._sampler is not None:
                self._sampler.close()
            self._weigh()
            self._closed = True
            self._changed.notify_all()

    def _quietly(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            raise_interrupt(error)
            log.error("mttp: recording or closing failed: %s", traced(error))


def _with_outcome(frame: Frame) -> Frame:
    """Return the span, or a copy whose name says an episode's outcome or a step's index."""
    record = frames.record(frame)
    name = episodes.telling_name(record.name, record.attributes)
    return frame if name == record.name else frames.changed(frame, replace(record, name=name))
