"""What waits for a transport, offered segment by segment, and again where it was refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp.backlog import Backlog
from mttp.livespan import LiveSpan
from mttp.losses import Losses
from mttp.stats import Stats

__all__ = ["Delivery", "Transport"]

_log = logging.getLogger("mttp")

SEGMENT_BYTES = 2 * 1024 * 1024
"""What a transport is given at once."""
REFUSALS = 3
"""How often an episode is offered alone to a transport that takes others and refuses this one."""
LOG_SECONDS = 60.0
"""A transport that keeps failing is mentioned in the log this often."""


class Transport(Protocol):
    """Where segments go. The SDK's exporters have this shape too."""

    def export(self, spans: Sequence[ReadableSpan], /) -> SpanExportResult:
        """Take a segment, or say that it was not taken."""

    def shutdown(self) -> None:
        """Release what is held; nothing is exported afterwards."""


class Delivery:
    """
    Keeps what the transport refuses, or raises at, and offers it again.

    After a refusal episodes are offered one by one, the refused ones last: it may be one that can't be taken.
    Such an episode is given up in the end; what the system refuses (a full disk, no network) never is.
    """

    def __init__(self, transport: Transport, stats: Stats, losses: Losses) -> None:
        self.waiting = Backlog()
        self.failing = False
        self._segment = Backlog()
        self._transport = transport
        self._stats = stats
        self._losses = losses
        self._refusals: dict[int, tuple[int, int]] = {}
        self._logged = float("-inf")

    @property
    def bytes(self) -> int:
        """What waits, and what the transport is being given."""
        return self.waiting.bytes + self._segment.bytes

    def offer(self) -> bool:
        """Offer the next segment; whether it was taken."""
        with self._stats.lock:
            segment = self._segment = self.waiting.take(SEGMENT_BYTES, traces=1 if self.failing else None)
            spans = segment.spans
        error: Exception | None = InterruptedError("writing was interrupted")
        try:
            error = self._export(spans)
        finally:
            with self._stats.lock:
                if segment is self._segment:  # else it took so long that it was given up
                    self._segment = Backlog()
                    self._settle(segment, len(spans), error)
                before, self.failing = self.failing, error is not None
        self._log(before, error, len(spans))
        return error is None

    def give_up(self) -> Backlog:
        """Everything that is left; nothing of it is offered any more."""
        left = Backlog()
        left.extend(self._segment)
        left.extend(self.waiting)
        self.waiting, self._segment = Backlog(), Backlog()
        return left

    def shutdown(self) -> None:
        """Release the transport, where it has anything to release."""
        shutdown = getattr(self._transport, "shutdown", None)
        if shutdown is not None:
            shutdown()

    def _export(self, spans: Sequence[LiveSpan]) -> Exception | None:
        try:
            taken = self._transport.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            return error
        return None if taken else RuntimeError("the transport refused them")

    def _settle(self, segment: Backlog, count: int, error: Exception | None) -> None:
        if error is None:
            self._stats.delivered += count
            for trace_id in segment.traces if self._refusals else ():
                self._refusals.pop(trace_id, None)
            return
        if len(segment) == 1 and not isinstance(error, OSError):
            self._refused(segment)
        for trace_id in segment.traces:
            if trace_id in self._losses:
                self._losses.add(trace_id, segment.drop(trace_id))
        self.waiting.put_back(segment)

    def _refused(self, segment: Backlog) -> None:
        """Give up the one episode of a segment where the transport took others since it refused this one."""
        (trace_id,) = segment.traces
        count, delivered = self._refusals.get(trace_id, (0, -1))
        if self._stats.delivered == delivered:
            return
        self._refusals[trace_id] = (count + 1, self._stats.delivered)
        if count + 1 == REFUSALS:
            del self._refusals[trace_id]
            self._losses.add(trace_id, segment.drop(trace_id) + self.waiting.drop(trace_id), "refused")

    def _log(self, before: bool, error: Exception | None, count: int) -> None:
        now = time.monotonic()
        if error is not None and not before and now - self._logged > LOG_SECONDS:
            self._logged = now
            _log.warning("mttp: %d spans could not be written and are kept for later: %r", count, error)
        elif error is None and before and now - self._logged < LOG_SECONDS:
            _log.warning("mttp: writing works again")
