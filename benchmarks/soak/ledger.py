"""A ledger of spans that arrived: each counted once, and each episode compared with its root's count."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

__all__ = ["Ledger"]

_PAGE_BITS = 1 << 16
_MOST_OPEN = 50_000
"""Traces without all of their spans that are remembered; older ones are counted as they stand."""


class Ledger:
    """
    Counts distinct spans by their ids, exactly and in bounded memory.

    The span ids of a process count up from a random number, so a bitmap of pages takes little more than a bit
    per span.
    """

    def __init__(self) -> None:
        self.distinct = 0
        """Spans with different ids."""
        self.duplicates = 0
        """Spans whose ids had arrived before."""
        self.complete = 0
        """Episodes with as many spans as their roots state."""
        self.incomplete = 0
        """Episodes that were forgotten without all of their spans."""
        self.steps = 0
        """Steps, whether as spans or in columns."""
        self.names: Counter[str] = Counter()
        """Distinct spans by name."""
        self._pages: dict[int, bytearray] = {}
        self._open: OrderedDict[str, list[int]] = OrderedDict()

    def add(
        self,
        trace_id: str,
        span_id: int,
        name: str,
        *,
        steps: int = 0,
        weight: int = 1,
        expected: int | None = None,
    ) -> None:
        """
        Count a span.

        `weight` is what it counts for in its episode, and `expected` the count that a root states.
        """
        page = self._pages.setdefault(span_id // _PAGE_BITS, bytearray(_PAGE_BITS // 8))
        place, bit = span_id % _PAGE_BITS // 8, 1 << span_id % 8
        if page[place] & bit:
            self.duplicates += 1
            return
        page[place] |= bit
        self.distinct += 1
        self.steps += steps
        self.names[name] += 1
        counts = self._open.setdefault(trace_id, [0, 0])
        counts[0] += weight
        if expected is not None:
            counts[1] = expected
        if counts[0] == counts[1]:
            del self._open[trace_id]
            self.complete += 1
        elif len(self._open) > _MOST_OPEN:
            self.incomplete += bool(self._open.popitem(last=False)[1][1])

    def has(self, span_id: int) -> bool:
        """Whether a span of this id has arrived."""
        page = self._pages.get(span_id // _PAGE_BITS)
        return page is not None and bool(page[span_id % _PAGE_BITS // 8] & 1 << span_id % 8)

    def as_dict(self) -> dict[str, Any]:
        """All counts; episodes whose root arrived without all other spans are incomplete."""
        waiting = sum(bool(expected) for _, expected in self._open.values())
        return {
            "distinct": self.distinct,
            "duplicates": self.duplicates,
            "complete_episodes": self.complete,
            "incomplete_episodes": self.incomplete + waiting,
            "steps": self.steps,
            "names": dict(self.names),
        }
