"""Where an episode that sampling did not choose waits for its end: a rule may still want it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from types import MappingProxyType

from mttp.otlp.spans import EndedSpan
from mttp.transports.sampling import Sampling
from mttp.transports.stats import TransportStats

__all__ = ["TailSampler"]

HELD_BYTES = 16 * 1024 * 1024
"""How much waits for the end of its episode; beyond, what waits longest is not sent."""
REMEMBERED = 10_000
"""Episodes of which the verdict is known, should more come of them."""


class TailSampler:
    """
    Lets spans of chosen traces through, and holds the others until their episode ends.

    An episode's part in another process ends with its `segment`.
    """

    def __init__(self, sampling: Sampling, stats: TransportStats) -> None:
        self.bytes = 0
        """Roughly what is held."""
        self._sampling = sampling
        self._stats = stats
        self._held: OrderedDict[int, list[EndedSpan]] = OrderedDict()
        self._verdicts: OrderedDict[int, bool] = OrderedDict()

    def judge(self, span: EndedSpan) -> bool:
        """Whether a rule wants the episode that ends with this span; called without the lock."""
        if span.is_sampled or not span.is_last:
            return False
        held = list(self._held.get(span.trace_id, ()))
        return self._sampling.wants([MappingProxyType(each.values) for each in [*held, span]])

    def admit(self, span: EndedSpan, *, wanted: bool) -> Sequence[EndedSpan]:
        """What may go on now that this span has ended; `wanted` is what `judge` said of it."""
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
        """Nothing more comes: what is held is not sent."""
        while self._held:
            self._settle(next(iter(self._held)), wanted=False)

    def _settle(self, trace_id: int, *, wanted: bool) -> Sequence[EndedSpan]:
        """Decide on an episode for good: whatever still comes of it has the same verdict."""
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
