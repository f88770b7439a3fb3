"""Reduces spans to what a summary needs: one value for each whole episode, and the other spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any

from mttp.codec import summary_fields
from mttp.model.spans import SpanRecord
from mttp.reading.assembly import Assembler, EpisodePlace
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.reading.lines import Decoded
from mttp.semconv import attributes as a

__all__ = ["EpisodeDigest", "digested"]

_NEEDED = frozenset({a.RUN_ID, a.GEN_AI_OPERATION_NAME})
"""A span of another library is kept if it is a model call: its duration is part of the figures."""


class EpisodeDigest:
    """Puts one `EpisodeSummary` in place of all spans of each whole episode, span by span."""

    def __init__(self, *, figures: bool) -> None:
        self._assembler = Assembler(figures=figures)
        self._whole: set[str] = set()
        self._kept: defaultdict[str, list[tuple[Any, SpanRecord]]] = defaultdict(list)

    def has_open(self, trace_id: str) -> bool:
        """Whether some, but not all, spans of the episode were added."""
        return self._assembler.has_open(trace_id)

    def add(self, item: SpanRecord | EpisodeSummary, place: Any, *, is_first: bool) -> Any:
        """
        Add a span, or the summary of an episode; return what stands in its place, None for nothing.

        `is_first` says whether it is the first span of its scope: one is kept, for its version.
        """
        if isinstance(item, EpisodeSummary):
            self._whole.add(item.row.trace_id)
            return item
        if summary_fields.is_own(item.attributes) and item.trace_id not in self._whole:
            self._kept[item.trace_id].append((place, item))
            ended = self._assembler.add(summary_fields.kind(item), item)
            if ended is not None:
                self._whole.add(item.trace_id)
                del self._kept[item.trace_id]
            return ended
        is_needed = is_first or not _NEEDED.isdisjoint(item.attributes) or summary_fields.kind(item)
        return item if is_needed else None

    def rest(self) -> Iterator[tuple[Any, SpanRecord]]:
        """The places and spans of incomplete episodes."""
        return chain.from_iterable(self._kept.values())

    def place_of(self, trace_id: str) -> EpisodePlace | None:
        """The facts of an incomplete episode that are known so far."""
        episode = self._assembler.open.get(trace_id)
        return None if episode is None else episode.place


def digested(decode: Callable[[IsOpen], Iterable[Decoded]], *, figures: bool) -> list[Decoded]:
    """
    The lines with one `EpisodeSummary` in place of all spans of each episode that is whole in them.

    Aggregating the results of all parts in order gives the same figures as aggregating all spans.
    """
    digest, position = EpisodeDigest(figures=figures), 0
    lines: list[Decoded] = []
    rows: list[list[tuple[int, Any]]] = []
    for number, line in enumerate(decode(digest.has_open)):
        lines.append(line)
        rows.append([])
        scopes: set[int] = set()
        for record in line.spans or ():
            position += 1
            is_first = id(record.scope) not in scopes
            scopes.add(id(record.scope))
            item = digest.add(record, (number, position), is_first=is_first)
            if item is not None:
                rows[number].append((position, item))
    for (number, position), record in digest.rest():
        rows[number].append((position, record))
    return [
        line._replace(spans=[item for _, item in sorted(row, key=itemgetter(0))]) if line.spans else line
        for line, row in zip(lines, rows, strict=True)
    ]
