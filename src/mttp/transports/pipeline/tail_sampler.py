"""Tail sampling: unsampled episodes wait for their end, when a rule may keep them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from types import MappingProxyType

from mttp.otlp.spans import EndedSpan
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

    An episode's part in another process ends with its `segment`.
    """

    def __init__(self, sampling: Sampling, stats: TransportStats) -> None:
        self.bytes = 0
        """Approximate bytes held."""
        self._sampling = sampling
        self._stats = stats
        self._held: OrderedDict[int, list[EndedSpan]] = OrderedDict()
        self._verdicts: OrderedDict[int, bool] = OrderedDict()

    def judge(self, span: EndedSpan) -> bool:
        """Whether a rule keeps the episode that ends with this span. Called without the lock."""
        if span.is_sampled or not span.is_last:
            return False
        held = list(self._held.get(span.trace_id, ()))
        return self._sampling.wants([MappingProxyType(each.values) for each in [*held, span]])

    def admit(self, span: EndedSpan, *, wanted: bool) -> Sequence[EndedSpan]:
        """Return the spans to export now that `span` has ended; `wanted` is the result of `judge`."""
        if span.is_sampled:
            return (span,)
        trace_id = span.trace_id
        if trace_id in self._verdicts:
            return self._decide([span], wanted=self._verdicts[trace_id])
        self._held.setdefault(trace_id, []).append(span)
        self.bytes += span.size
        if span.is_last:
            return self._settle(trace_id, wanted=wanted)
        while self.bytes > HELD_BYTES:
            self._settle(next(iter(self._held)), wanted=False)
        return ()

    def close(self) -> None:
        """Drop all held spans."""
        while self._held:
            self._settle(next(iter(self._held)), wanted=False)

    def _settle(self, trace_id: int, *, wanted: bool) -> Sequence[EndedSpan]:
        """Decide on an episode; its later spans follow the same decision."""
        self._verdicts[trace_id] = wanted
        if len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)
        spans = self._held.pop(trace_id)
        self.bytes -= sum(span.size for span in spans)
        return self._decide(spans, wanted=wanted)

    def _decide(self, spans: list[EndedSpan], *, wanted: bool) -> Sequence[EndedSpan]:
        if wanted:
            return spans
        self._stats.taken -= len(spans)
        self._stats.sampled_out += len(spans)
        return ()
