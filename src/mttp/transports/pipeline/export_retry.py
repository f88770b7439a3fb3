"""Exports queued spans segment by segment, and again after a failure."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.model import clock
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.otlp.frames import Frame, record
from mttp.otlp.spans.span_records import EndedSpan
from mttp.transports import backoff
from mttp.transports.export_target import ExportTarget
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.pipeline.disk_queue import DiskQueue
from mttp.transports.pipeline.losses import LOG_SECONDS, Losses
from mttp.transports.stats import TransportStats

__all__ = ["ExportRetry", "FrameQueue", "traces"]


REFUSALS = 3
"""Attempts at one episode that the transport refuses while it accepts others."""


def traces(frames: Iterable[Frame]) -> dict[int, list[Frame]]:
    """Return spans by trace, in the order in which each trace appears first."""
    by_trace: dict[int, list[Frame]] = {}
    for frame in frames:
        by_trace.setdefault(frame.trace_id, []).append(frame)
    return by_trace


class FrameQueue:
    """Spans in the order in which they are exported; those of a trace that come together stay together."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.bytes = 0
        """The size of the spans."""

    def __len__(self) -> int:
        """The number of spans."""
        return len(self._frames)

    def extend(self, frames: Sequence[Frame]) -> None:
        """Add spans at the end."""
        self._frames.extend(frames)
        self.bytes += sum(map(len, frames))

    def put_first(self, frames: Sequence[Frame]) -> None:
        """Add spans at the head."""
        self._frames.extendleft(reversed(frames))
        self.bytes += sum(map(len, frames))

    def take(self, max_bytes: int, *, alone: bool = False) -> list[Frame]:
        """Remove and return the first spans, about `max_bytes`; `alone` only those of the first trace."""
        batch: list[Frame] = []
        size, waiting = 0, self._frames
        while waiting and size < max_bytes:
            if alone and batch and waiting[0].trace_id != batch[0].trace_id:
                break
            batch.append(waiting.popleft())
            size += len(batch[-1])
        self.bytes -= size
        return batch

    def drop(self, trace_id: int) -> list[Frame]:
        """Remove and return the spans of a trace."""
        dropped = [frame for frame in self._frames if frame.trace_id == trace_id]
        if dropped:
            self._frames = deque(frame for frame in self._frames if frame.trace_id != trace_id)
            self.bytes -= sum(map(len, dropped))
        return dropped

    def clear(self) -> list[Frame]:
        """Remove and return all spans."""
        frames, self._frames, self.bytes = list(self._frames), deque(), 0
        return frames


@dataclass(frozen=True, slots=True)
class _ExportOutcome:
    """The result of one export: `kept` spans are exported again; others were delivered or rejected."""

    kept: Sequence[Frame] = ()
    rejections: Sequence[RejectedSpans] = ()
    error: Exception | None = None
    retry_after: float = 0.0

    @property
    def taken(self) -> bool:
        """Whether no span has to be exported again."""
        return not self.kept


class ExportRetry:
    """
    Keeps spans whose export failed, and exports them again.

    After a failure episodes are exported one by one, failed ones last, since one of them may be the cause.
    Such an episode is dropped after `REFUSALS` attempts; no episode is dropped for an OSError (full disk, no
    network) or a MemoryError.
    With a spool, spans that a receiver does not accept are moved to disk, and so are all that follow them.
    """

    def __init__(
        self, target: ExportTarget, stats: TransportStats, losses: Losses, lock: threading.RLock
    ) -> None:
        self.queue = FrameQueue()
        """The spans that wait."""
        self.failing = False
        self.not_before = 0.0
        """Monotonic time before which nothing is exported."""
        self._segment: list[Frame] = []
        """The spans that are being exported."""
        self._segment_bytes = 0
        self._target = target
        self._stats = stats
        self._losses = losses
        self._lock = lock
        self._refusals: dict[int, tuple[int, int]] = {}
        self._disk = DiskQueue(target.spool, stats, losses) if target.spool is not None else None
        self._failures = 0
        self._pause_until = float("-inf")
        self._logged = float("-inf")
        self._is_failing = False
        self._released = False

    @property
    def bytes(self) -> int:
        """Bytes in the queue and in the segment being exported."""
        return self.queue.bytes + self._segment_bytes

    @property
    def has_disk(self) -> bool:
        """Whether the transport has a spool."""
        return self._disk is not None

    @property
    def has_own(self) -> bool:
        """Whether spans of this process wait, in memory or on disk."""
        return bool(self.queue) or (self._disk is not None and self._disk.has_own)

    @property
    def has_work(self) -> bool:
        """Whether any spans wait, those included that ended processes have left on disk."""
        return bool(self.queue) or (self._disk is not None and self._disk.has_work)

    @property
    def spool_cause(self) -> str:
        """The cause of losses while the spool takes no spans; empty if it does, or there is none."""
        return self._disk.full_cause if self._disk is not None else ""

    @property
    def exported(self) -> int:
        """Spans that were exported, those of ended processes included."""
        return self._stats.delivered + self._stats.forwarded["delivered"]

    def offer(self, *, at_once: bool) -> bool:
        """
        Export the next spans; return whether all of them were delivered or rejected.

        `at_once` does not wait between attempts, unless the receiver has asked for a delay.
        """
        now = clock.seconds()
        is_waiting = now < self.not_before or (now < self._pause_until and not at_once)
        if self._disk is not None and self.queue and (is_waiting or self._disk.has_own):
            self.spill()
        if is_waiting:
            return False
        if self._disk is not None and (self._disk.has_own or not self.queue):
            try:
                answer, offered = self._offer_from_disk(self._disk)
            except OSError as error:
                self._disk.log_unreadable(error)
                self.failing = True
                self._pause()
                return False
        else:
            answer, offered = self._offer_from_memory()
        self.failing = not answer.taken
        self.not_before = clock.seconds() + answer.retry_after
        self._log(answer, offered)
        if answer.taken:
            self._failures = 0
        elif self._disk is not None:
            self._pause()
        return answer.taken

    def _pause(self) -> None:
        """Put off the next attempt, and move spans to disk meanwhile."""
        self._failures += 1
        self._pause_until = clock.seconds() + backoff.wait(self._failures)
        self.spill()

    def spill(self) -> None:
        """Move spans from memory to disk, as long as the spool takes them."""
        while self._disk is not None and self.queue:
            with self._lock:
                segment = self._begin()
            left: Sequence[Frame] = segment
            try:
                left = self._disk.put(left)
            finally:
                with self._lock:
                    if segment is self._segment:  # else it took so long that it was given up
                        self._over()
                        self.queue.put_first(left)
            if left:
                return

    def take_back(self) -> None:
        """Return the segment of an export that hangs to the queue."""
        with self._lock:
            self.queue.put_first(self._over())

    def _offer_from_disk(self, disk: DiskQueue) -> tuple[_ExportOutcome, Sequence[Frame]]:
        offered = disk.take(self._target.segment_bytes)
        answer = self._export(offered) if offered else _ExportOutcome()
        with self._lock:
            rejected = Counter({rejection.cause: rejection.spans for rejection in answer.rejections})
            if disk.settle(answer.kept, rejected):
                self._count(offered, answer)
        return answer, offered

    def _offer_from_memory(self) -> tuple[_ExportOutcome, Sequence[Frame]]:
        with self._lock:
            offered = self._begin(alone=self.failing)
        answer = _ExportOutcome(kept=offered, error=InterruptedError("writing was interrupted"))
        try:
            answer = self._export(offered)
        finally:
            with self._lock:
                if offered is self._segment:  # else it took so long that it was given up
                    self._over()
                    self._settle(offered, answer)
                self.failing = not answer.taken
        return answer, offered

    def give_up(self) -> list[Frame]:
        """Remove and return all remaining spans."""
        return self._over() + self.queue.clear()

    def _begin(self, *, alone: bool = False) -> list[Frame]:
        """Take the next segment from the queue. Called under the lock."""
        before = self.queue.bytes
        self._segment = self.queue.take(self._target.segment_bytes, alone=alone)
        self._segment_bytes = before - self.queue.bytes
        return self._segment

    def _over(self) -> list[Frame]:
        """Forget the segment, and return it. Called under the lock."""
        segment, self._segment, self._segment_bytes = self._segment, [], 0
        return segment

    def shutdown(self) -> None:
        """Shut the transport down, once, if the session owns it."""
        with self._lock:
            released, self._released = self._released, True
        shutdown = getattr(self._target.transport, "shutdown", None)
        if shutdown is not None and self._target.owned and not released:
            shutdown()

    def _export(self, spans: Sequence[Frame]) -> _ExportOutcome:
        batch: Sequence[Any] = spans
        try:
            if not self._target.takes_frames:
                batch = [EndedSpan(record(frame), is_sampled=frame.is_sampled) for frame in spans]
            is_delivered = self._target.transport.export(batch) is SpanExportResult.SUCCESS
        except PartialExport as refused:
            named = set(map(id, refused.kept))
            remaining = [frame for frame, span in zip(spans, batch, strict=True) if id(span) in named]
            rejections = tuple(_at_most(len(spans) - len(remaining), refused.rejections))
            return _ExportOutcome(remaining, rejections, refused, refused.retry_after or 0.0)
        except Exception as error:
            raise_interrupt(error)
            return _ExportOutcome(kept=spans, error=error)
        except BaseException as error:  # SystemExit or a cancellation in an exporter must not end the thread
            if threading.current_thread() is threading.main_thread():
                raise  # in the main thread it may be Ctrl-C or a signal handler's SystemExit
            return _ExportOutcome(kept=spans, error=RuntimeError(repr(error)))
        return (
            _ExportOutcome()
            if is_delivered
            else _ExportOutcome(kept=spans, error=RuntimeError("the transport refused them"))
        )

    def _count(self, offered: Sequence[Frame], answer: _ExportOutcome) -> None:
        """Count spans as delivered or rejected."""
        again = set(map(id, answer.kept))
        gone = [span for span in offered if id(span) not in again] if again else offered
        for rejection in answer.rejections:
            self._losses.reject(rejection, gone)
        self._losses.forget(gone)
        rejected = sum(rejection.spans for rejection in answer.rejections)
        self._stats.delivered += len(offered) - len(answer.kept) - rejected

    def _settle(self, offered: Sequence[Frame], answer: _ExportOutcome) -> None:
        self._count(offered, answer)
        if answer.taken:
            for trace_id in traces(offered) if self._refusals else ():
                self._refusals.pop(trace_id, None)
            return
        by_trace = traces(answer.kept)
        if len(by_trace) == 1 and not isinstance(answer.error, (OSError, MemoryError, PartialExport)):
            self._refused(by_trace)
        left: list[Frame] = []
        for trace_id, frames in by_trace.items():
            if trace_id in self._losses:
                self._losses.add(trace_id, frames)
            else:
                left += frames
        if self._disk is not None:
            self.queue.put_first(left)  # those of a spool keep their order
        else:
            self.queue.extend(left)  # at the end: they may be the cause of the failure

    def _refused(self, by_trace: dict[int, list[Frame]]) -> None:
        """Drop the one episode of a segment after `REFUSALS` failures while others were delivered."""
        (trace_id,) = by_trace
        count, delivered = self._refusals.get(trace_id, (0, -1))
        if self._stats.delivered == delivered:
            return
        self._refusals[trace_id] = (count + 1, self._stats.delivered)
        if count + 1 == REFUSALS:
            del self._refusals[trace_id]
            self._losses.add(trace_id, by_trace.pop(trace_id) + self.queue.drop(trace_id), "refused")

    def _log(self, answer: _ExportOutcome, offered: Sequence[Frame]) -> None:
        now, name = clock.seconds(), self._target.address
        if answer.error is not None and now - self._logged > LOG_SECONDS:
            self._logged, self._is_failing = now, True
            what = "were rejected by" if answer.taken else "could not be written to"
            rest = "" if answer.taken else " and are kept for later"
            count = len(answer.kept or offered)
            log.warning("mttp: %d spans %s %s%s: %s", count, what, name, rest, self._error_text(answer))
        elif answer.error is None and self._is_failing:
            self._is_failing = False
            log.warning("mttp: writing to %s works again", name)

    def _error_text(self, answer: _ExportOutcome) -> str:
        """The error as text; for PartialExport its message without the address."""
        error = answer.error
        return (
            str(error).removeprefix(f"{self._target.address}: ")
            if isinstance(error, PartialExport)
            else repr(error)
        )


def _at_most(count: int, rejections: Sequence[RejectedSpans]) -> Iterator[RejectedSpans]:
    """The rejections, limited to `count` spans in all: a receiver may report more than it got."""
    for rejection in rejections:
        spans = min(max(rejection.spans, 0), count)
        count -= spans
        if spans:
            yield replace(rejection, spans=spans, episodes=min(max(rejection.episodes, 0), spans))
