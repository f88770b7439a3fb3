"""Tail sampling: unsampled episodes wait for their end, when a rule may keep them; roots state shares."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from mttp.otlp import frames
from mttp.otlp.frames import Frame
from mttp.semconv import attributes as a
from mttp.transports.sampling import Sampling
from mttp.transports.stats import TransportStats

__all__ = ["TailSampler"]

HELD_BYTES = 16 * 1024 * 1024
"""Bytes held; beyond, the oldest episode is dropped."""
REMEMBERED = 10_000
"""Decided episodes that are remembered, for spans that come later."""


class TailSampler:
    """
    Passes spans of sampled traces, and holds the others until their episode ends.

    The root of each exported episode states the share with which one like it is exported, in its trace state:
    1 if a rule wants it, else the ratio. So the rules see the spans of sampled episodes, too; if these are
    more than can be held, the root states nothing.
    An episode's part in another process ends with its `segment`.
    """

    def __init__(self, sampling: Sampling, stats: TransportStats) -> None:
        self.bytes = 0
        """Approximate bytes held."""
        self._sampling = sampling
        self._stats = stats
        self._held: OrderedDict[int, list[Frame]] = OrderedDict()
        self._verdicts: OrderedDict[int, bool] = OrderedDict()

    def judge(self, span: Frame) -> bool:
        """Whether a rule keeps the episode that ends with this span. Called without the lock."""
        if not span.is_last or (span.is_sampled and not span.of_episode):
            return False
        spans = self._held.get(span.trace_id, ())
        return self._sampling.wants([frames.record(each).attributes for each in [*spans, span]])

    def admit(self, span: Frame, *, wanted: bool) -> Sequence[Frame]:
        """
        Return the spans to export now that `span` has ended; `wanted` is the result of `judge`.

        Called under the lock of the counters.
        """
        trace_id = span.trace_id
        if span.is_sampled and not (span.of_episode and self._sampling.keep):
            return (self._stating(span, wanted=False),)
        if trace_id in self._verdicts:
            return (span,) if span.is_sampled else self._decide([span], wanted=self._verdicts[trace_id])
        self._held.setdefault(trace_id, []).append(span)
        self.bytes += len(span)
        if span.is_last:
            spans = self._settle(trace_id, wanted=wanted)
            return (self._stating(span, wanted=wanted),) if span.is_sampled else spans
        while self.bytes > HELD_BYTES:
            self._settle(next(iter(self._held)), wanted=False)
        return (span,) if span.is_sampled else ()

    def _stating(self, span: Frame, *, wanted: bool) -> Frame:
        """Return the span, with the share of the episode if it is the root of one."""
        if not (span.is_last and span.of_episode):
            return span
        record = frames.record(span)
        if record.parent_id:
            return span
        run_id, group = str(record.attributes.get(a.RUN_ID, "")), record.attributes.get(a.GROUP_ID)
        state = self._sampling.state(span.trace_id, run_id=run_id, group=group, wanted=wanted)
        return frames.changed(span, replace(record, trace_state=f"ot={state}"))

    def close(self) -> None:
        """Drop all held spans."""
        while self._held:
            self._settle(next(iter(self._held)), wanted=False)

    def _settle(self, trace_id: int, *, wanted: bool) -> Sequence[Frame]:
        """Decide on an episode; its later spans follow the same decision."""
        self._verdicts[trace_id] = wanted
        if len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)
        spans = self._held.pop(trace_id)
        self.bytes -= sum(map(len, spans))
        return () if spans[0].is_sampled else self._decide(spans, wanted=wanted)

    def _decide(self, spans: list[Frame], *, wanted: bool) -> Sequence[Frame]:
        if wanted:
            return [self._stating(span, wanted=True) for span in spans]
        self._stats.taken -= len(spans)
        self._stats.sampled_out += len(spans)
        return ()
