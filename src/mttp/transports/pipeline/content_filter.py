"""The filter that removes attributes a transport must not receive."""

from __future__ import annotations

from collections.abc import Callable

from mttp.codec import tokens
from mttp.codec.pending import TOKENS
from mttp.codec.withholding import Withholding
from mttp.otlp.spans import EndedSpan, RecordingSpan
from mttp.semconv import attributes as a

__all__ = ["ContentFilter"]

_HARMLESS = frozenset(
    {a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID, a.STEP_INDEX, a.STEP_REWARD, a.STEP_REWARD_STATUS}
)
"""Attributes that are never withheld."""


class ContentFilter:
    """Applies a `Withholding` to spans; keeps the byte budget that each open episode has used."""

    def __init__(self, withholding: Withholding, fault: Callable[[str, str], None]) -> None:
        """`fault(kind, detail)` is called for each value on which `redact` raised."""
        self._withholding = withholding
        self._fault = fault
        self._spent: dict[int, int] = {}

    def __call__(self, span: EndedSpan) -> EndedSpan:
        """Return the span without withheld values, or the span itself if none is withheld."""
        trace_id = span.trace_id
        if isinstance(span, RecordingSpan):
            block = _only_tokens(span)
            spent = None if block is None else self._withholding.spend(block, self._spent.get(trace_id, 0))
            if spent is not None:
                if spent:
                    self._spent[trace_id] = spent
                return span
        status, marks = span.texts
        spent = self._spent.get(trace_id, 0)
        kept = self._withholding.keep(span.values, spent=spent, status=status, marks=marks)
        for detail in kept.raised:
            self._fault("redaction_failed", detail)
        if span.is_last:
            self._spent.pop(trace_id, None)
        elif kept.spent:
            self._spent[trace_id] = kept.spent
        if not kept.changed:
            return span
        return span.with_values(dict(kept.values)).with_texts(kept.status, kept.marks)


def _only_tokens(span: RecordingSpan) -> tokens.Block | None:
    """The unencoded token block of a span that has nothing else to withhold."""
    pending = span.pending
    if pending is None or len(pending) > 1 or TOKENS not in pending:
        return None
    if span.encoded.keys() <= _HARMLESS and not (span._events or span._links or span._status.description):
        block: tokens.Block = pending[TOKENS]
        return block
    return None
