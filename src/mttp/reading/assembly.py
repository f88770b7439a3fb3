"""
Episodes put together of their spans as far as a summary wants to know them, in one pass and in any order.

An open episode keeps the ids of its spans, and those spans that say something of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from mttp.codec import outline, segments
from mttp.gradings import Grading, Scored, gradings, label
from mttp.reading.ended import Counts, Ended, Row, Undecided
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import Scope, SpanRecord

__all__ = ["Assembler", "Ongoing"]


_NOWHERE = Scope()


class Ongoing:
    """What was seen of the part of an episode that one process recorded, or of all other parts."""

    __slots__ = ("counts", "duplicates", "first", "grades", "marker", "parts", "root", "scorings", "steps")

    def __init__(self) -> None:
        self.parts = segments.Parts()
        self.steps = segments.Totals()
        self.counts = Counts()
        self.duplicates = 0
        """How many spans came again."""
        self.root: SpanRecord | None = None
        self.marker: SpanRecord | None = None
        self.first: SpanRecord | None = None
        self.scorings: dict[tuple[str, str, bool], SpanRecord] = {}
        """The last scoring of each step and agent, and of the whole with a total and without."""
        self.grades: list[SpanRecord] = []

    def add(self, kind: str, record: SpanRecord) -> None:
        """Take a span of that kind."""
        if not self.parts.add(kind, record):
            self.duplicates += 1
            return
        self.counts.add(kind, record.attributes)
        if self.first is None or record.start_time < self.first.start_time:
            self.first = record
        if kind in (names.STEP, names.STEPS):
            self.steps.add(outline.played(record))
        elif kind == names.REWARD:
            self._score(record)
        elif kind == names.GRADE:
            self.grades.append(record)
        elif kind == names.EPISODE:
            self.root = self.root or record
        elif kind == names.EPISODE_START:
            self.marker = self.marker or record

    def add_step(self, span_id: str, attributes: Mapping[str, Any]) -> None:
        """Take a step of an episode whose root is known to come."""
        self.parts.take(segments.OWNER, span_id)
        self.counts.add(names.STEP, attributes)

    def _score(self, record: SpanRecord) -> None:
        scored = outline.scored(record)
        before = self.scorings.get(scored)
        if before is None or _when(record) >= _when(before):
            self.scorings.pop(scored, None)  # of several at one time the last one counts, here and below
            self.scorings[scored] = record

    @property
    def is_whole(self) -> bool:
        """Whether the episode has ended, and all spans of the process that started it were seen."""
        return self.parts.is_whole(segments.OWNER)

    def scoring(self) -> tuple[str, Scored] | None:
        """The scoring of the whole that stands, and in whose part it was recorded."""
        root = None if self.root is None else self.root.span_id
        of_whole = [
            record
            for (scope, target, _), record in self.scorings.items()
            if scope == "episode" and root in (None, target)
        ]
        children = outline.children(self.grades)
        return segments.paying(
            [(segments.segment(one), outline.reward(one, children)) for one in sorted(of_whole, key=_when)]
        )

    def gradings(self) -> Iterator[Grading]:
        """Those of the last scoring of each step and agent."""
        children = outline.children(self.grades) if self.scorings else {}
        for (scope, *_), record in self.scorings.items():
            if scope != "episode":
                yield from gradings(outline.reward(record, children), scope=scope)

    def ended(self, trace_id: str, scope: Scope = _NOWHERE) -> Ended:
        """All that was seen, as one value."""
        start = self.root or self.marker or self.first
        assert start is not None
        found = start.attributes
        mine, undecided, is_scored = tuple(self.gradings()), None, False
        scoring = self.scoring() if self.scorings else None
        if scoring is not None:
            stated, is_scored = tuple(gradings(scoring[1])), segments.states_total(scoring[1])
            undecided = None if is_scored else Undecided(when(scoring[1]), stated)
            mine += stated if is_scored else ()
        return Ended(
            row=self._row(trace_id, start, scoring and scoring[1]),
            counts=self.counts,
            gradings=mine,
            cost_usd=None if self.root is None else outline.number(found, a.USAGE_COST_USD),
            is_scored=is_scored,
            undecided=undecided,
            basis=found.get(a.EPISODE_RETURN_BASIS),
            root=start.parent_id if self.root is None else start.span_id,
            spans=self.parts.found,
            duplicates=self.duplicates,
            scope=scope,
        )

    def _row(self, trace_id: str, start: SpanRecord, paid_by: Scored | None) -> Row:
        found, is_finished = start.attributes, self.root is not None
        return_ = outline.number(found, a.EPISODE_RETURN) if is_finished else None
        return Row(
            run=outline.run(start),
            trace_id=trace_id,
            start_time=start.start_time,
            duration=(start.end_time - start.start_time) / 1e9 if is_finished else math.nan,
            return_=math.nan if return_ is None else return_,
            length=outline.count(found, a.EPISODE_LENGTH) if is_finished else self.steps.longest,
            status=str(found.get(a.EPISODE_STATUS, "completed")) if is_finished else "unfinished",
            outcome=str(found.get(a.EPISODE_OUTCOME, "unknown")),
            env=str(found.get(a.ENV_ID, "")),
            spec="" if not is_finished else spec(paid_by) if paid_by else outline.spec(found),
            task=str(found.get(a.TASK_ID, "")),
        )


def spec(reward: Scored) -> str:
    """Name and version of the reward spec that paid; empty where none did."""
    return label(reward) if reward.spec is not None else ""


def when(reward: Scored) -> tuple[int, int]:
    """When a scoring began and ended."""
    return reward.start_time, reward.end_time


def _when(record: SpanRecord) -> tuple[int, int]:
    return record.start_time, record.end_time


class Assembler:
    """Makes episodes of the spans of the processes that started them, each as soon as it is whole."""

    def __init__(self) -> None:
        self.open: dict[str, Ongoing] = {}
        """Those that are not whole, by trace id."""

    def has_open(self, trace_id: str) -> bool:
        """Whether some spans of that episode were seen, and not all."""
        return trace_id in self.open

    def add(self, kind: str, record: SpanRecord) -> Ended | None:
        """Take a span of that kind; the episode, if it is whole by it."""
        episode = self.open.get(record.trace_id)
        if episode is None:
            episode = self.open[record.trace_id] = Ongoing()
        episode.add(kind, record)
        if not episode.is_whole:
            return None
        del self.open[record.trace_id]
        return episode.ended(record.trace_id, record.scope)
