"""What waits for a transport, offered segment by segment, and again where it was refused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.otlp.spans import EndedSpan
from mttp.transports.export_target import ExportTarget
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.pipeline.losses import LOG_SECONDS, Losses
from mttp.transports.pipeline.span_queue import SpanQueue
from mttp.transports.stats import TransportStats

__all__ = ["ExportRetry"]

_log = logging.getLogger("mttp")

REFUSALS = 3
"""How often an episode is offered alone to a transport that takes others and refuses this one."""


@dataclass(frozen=True, slots=True)
class _ExportOutcome:
    """What became of a segment: it was delivered but for what is `kept` and what was rejected."""

    kept: Sequence[EndedSpan] = ()
    rejections: Sequence[RejectedSpans] = ()
    error: Exception | None = None
    retry_after: float = 0.0

    @property
    def taken(self) -> bool:
        """Whether nothing of it is to be offered again."""
        return not self.kept


class ExportRetry:
    """
    Keeps what the transport refuses, or raises at, and offers it again.

    After a refusal episodes are offered one by one, the refused ones last: it may be one that can't be taken.
    Such an episode is given up in the end; what the system refuses (a full disk, no network) never is.
    """

    def __init__(
        self, target: ExportTarget, stats: TransportStats, losses: Losses, lock: threading.RLock
    ) -> None:
        self.queue = SpanQueue()
        self.failing = False
        self.not_before = 0.0
        """Nothing is offered ahead of this, on the monotonic clock."""
        self._segment = SpanQueue()
        self._target = target
        self._stats = stats
        self._losses = losses
        self._lock = lock
        self._refusals: dict[int, tuple[int, int]] = {}
        self._logged = float("-inf")
        self._in_trouble = False
        self._released = False

    @property
    def bytes(self) -> int:
        """What waits, and what the transport is being given."""
        return self.queue.bytes + self._segment.bytes

    def offer(self) -> bool:
        """Offer the next segment; whether it was taken."""
        if time.monotonic() < self.not_before:
            return False
        with self._lock:
            segment = self.queue.take(self._target.segment_bytes, traces=1 if self.failing else None)
            self._segment = segment
        offered = segment.spans
        answer = _ExportOutcome(kept=offered, error=InterruptedError("writing was interrupted"))
        try:
            answer = self._export(offered)
        finally:
            with self._lock:
                if segment is self._segment:  # else it took so long that it was given up
                    self._segment = SpanQueue()
                    self._settle(segment, offered, answer)
                self.failing = not answer.taken
        self.not_before = time.monotonic() + answer.retry_after
        self._log(answer, offered)
        return answer.taken

    def give_up(self) -> SpanQueue:
        """Everything that is left; nothing of it is offered any more."""
        left = SpanQueue()
        left.extend(self._segment)
        left.extend(self.queue)
        self.queue, self._segment = SpanQueue(), SpanQueue()
        return left

    def shutdown(self) -> None:
        """Release the transport, once, where it has anything to release."""
        with self._lock:
            released, self._released = self._released, True
        shutdown = getattr(self._target.transport, "shutdown", None)
        if shutdown is not None and self._target.owned and not released:
            shutdown()

    def _export(self, spans: Sequence[EndedSpan]) -> _ExportOutcome:
        try:
            taken = self._target.transport.export(spans) is SpanExportResult.SUCCESS
        except PartialExport as refused:
            named = set(map(id, refused.kept))
            kept = [span for span in spans if id(span) in named]
            rejections = tuple(_at_most(len(spans) - len(kept), refused.rejections))
            return _ExportOutcome(kept, rejections, refused, refused.retry_after or 0.0)
        except Exception as error:
            return _ExportOutcome(kept=spans, error=error)
        except BaseException as error:  # an exporter that leaves, or was cancelled, takes nobody with it
            if threading.current_thread() is threading.main_thread():
                raise  # here it may be Ctrl-C, or a signal's handler that leaves
            return _ExportOutcome(kept=spans, error=RuntimeError(repr(error)))
        return (
            _ExportOutcome()
            if taken
            else _ExportOutcome(kept=spans, error=RuntimeError("the transport refused them"))
        )

    def _settle(self, segment: SpanQueue, offered: Sequence[EndedSpan], answer: _ExportOutcome) -> None:
        if answer.rejections:
            again = set(map(id, answer.kept))
            gone = [span for span in offered if id(span) not in again]
            for rejection in answer.rejections:
                self._losses.reject(rejection, gone)
        rejected = sum(rejection.spans for rejection in answer.rejections)
        self._stats.delivered += len(offered) - len(answer.kept) - rejected
        if answer.taken:
            for trace_id in segment.traces if self._refusals else ():
                self._refusals.pop(trace_id, None)
            return
        kept = SpanQueue()
        for arrival in answer.kept:
            kept.add(arrival)
        if len(kept) == 1 and not isinstance(answer.error, (OSError, PartialExport)):
            self._refused(kept)
        for trace_id in kept.traces:
            if trace_id in self._losses:
                self._losses.add(trace_id, kept.drop(trace_id))
        self.queue.put_back(kept)

    def _refused(self, segment: SpanQueue) -> None:
        """Give up the one episode of a segment where the transport took others since it refused this one."""
        (trace_id,) = segment.traces
        count, delivered = self._refusals.get(trace_id, (0, -1))
        if self._stats.delivered == delivered:
            return
        self._refusals[trace_id] = (count + 1, self._stats.delivered)
        if count + 1 == REFUSALS:
            del self._refusals[trace_id]
            self._losses.add(trace_id, segment.drop(trace_id) + self.queue.drop(trace_id), "refused")

    def _log(self, answer: _ExportOutcome, offered: Sequence[EndedSpan]) -> None:
        now, name = time.monotonic(), self._target.address
        if answer.error is not None and now - self._logged > LOG_SECONDS:
            self._logged, self._in_trouble = now, True
            what = "were turned down by" if answer.taken else "could not be written to"
            rest = "" if answer.taken else " and are kept for later"
            count = len(answer.kept or offered)
            _log.warning("mttp: %d spans %s %s%s: %s", count, what, name, rest, self._why(answer))
        elif answer.error is None and self._in_trouble:
            self._in_trouble = False
            _log.warning("mttp: writing to %s works again", name)

    def _why(self, answer: _ExportOutcome) -> str:
        """What was raised; of a refusal its words, without the address, which is named already."""
        error = answer.error
        return (
            str(error).removeprefix(f"{self._target.address}: ")
            if isinstance(error, PartialExport)
            else repr(error)
        )


def _at_most(count: int, rejections: Sequence[RejectedSpans]) -> Iterator[RejectedSpans]:
    """The rejections, of no more spans than there were: a receiver may count as it likes."""
    for rejection in rejections:
        spans = min(max(rejection.spans, 0), count)
        count -= spans
        if spans:
            yield replace(rejection, spans=spans, episodes=min(max(rejection.episodes, 0), spans))
