"""Spans as one transport may have them, each looked at once."""

from __future__ import annotations

from collections.abc import Callable

from mttp.codec.withholding import Withholding
from mttp.livespan import Ended, LiveSpan

__all__ = ["Veil"]


class Veil:
    """Remembers how much of its budget each open episode has spent."""

    def __init__(self, withholding: Withholding, fault: Callable[[str, str], None]) -> None:
        """`fault` is told of each value at which the function that redacts raised."""
        self._withholding = withholding
        self._fault = fault
        self._spent: dict[int, int] = {}

    def __call__(self, span: Ended) -> Ended:
        """The span without what is withheld; the span itself where nothing is."""
        trace_id = span.trace_id
        if isinstance(span, LiveSpan):
            block = span.block  # in this order: another transport may look meanwhile
            spent = self._withholding.spend(block, self._spent.get(trace_id, 0)) if span.is_plain else None
            if spent is not None:
                if spent:
                    self._spent[trace_id] = spent
                return span
        status, marks = span.texts
        spent = self._spent.get(trace_id, 0)
        kept = self._withholding.keep(span.values, spent=spent, status=status, marks=marks)
        for said in kept.raised:
            self._fault("redaction_failed", said)
        if span.is_last:
            self._spent.pop(trace_id, None)
        elif kept.spent:
            self._spent[trace_id] = kept.spent
        if not kept.changed:
            return span
        return span.with_values(dict(kept.values)).with_texts(kept.status, kept.marks)
