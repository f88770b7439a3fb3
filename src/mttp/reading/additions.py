"""What processes add to episodes that another one started, in one pass: it may come long after the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from mttp.codec import outline, segments
from mttp.gradings import Grading
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["Addition", "Additions"]


class _Part:
    """One process's part, of which not all spans were seen."""

    __slots__ = ("seen", "span_count", "stated")

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.span_count = 0
        self.stated: int | None = None


class Addition:
    """What all other processes add to one episode."""

    __slots__ = (
        "_grades",
        "_last",
        "_open",
        "_others",
        "_total",
        "_whole",
        "length",
        "paid",
        "run",
        "start",
        "steps",
        "sum",
    )

    def __init__(self) -> None:
        self.run = ""
        """The run's id."""
        self.start = 0
        """When the first of it began."""
        self.steps: Counter[str | None] = Counter()
        """By agent."""
        self.length = 0
        """One more than the highest index of a step."""
        self.paid = False
        """Whether steps of nobody in particular were paid."""
        self.sum = 0.0
        """What they were paid; NaN where that can't be known."""
        self._open: dict[str, _Part] = {}
        self._whole: tuple[str, ...] = ()
        self._last: outline.Scored | None = None
        self._total: outline.Scored | None = None
        self._others: dict[tuple[str, str], outline.Scored] = {}
        self._grades: list[outline.Graded] = []

    def lacking(self) -> list[str]:
        """What each part lacks, in words."""
        return [segments.lack(name, part.span_count, part.stated) for name, part in self._open.items()]

    def scoring(self) -> outline.Scored | None:
        """The scoring of the whole that counts: the last that states a total, else the last."""
        scoring = self._total or self._last
        return scoring and outline.with_grades(scoring, self._grades)

    def gradings(self) -> Iterator[Grading]:
        """Those of the last scoring of each step and agent."""
        for scoring in self._others.values():
            yield from outline.with_grades(scoring, self._grades).gradings

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Count a span; whether it is new."""
        name = segments.segment(record)
        part = self._open.get(name)
        if part is None:
            if name in self._whole:
                return False
            part = self._open[name] = _Part()
        if record.span_id in part.seen:
            return False
        part.seen.add(record.span_id)
        part.span_count += segments.span_count(record)
        self.run = outline.run(record)
        self.start = min(self.start or record.start_time, record.start_time)
        self._take(kind, record, part)
        if part.stated is not None and part.span_count >= part.stated:
            self._open = {other: left for other, left in self._open.items() if other != name}
            self._whole += (name,)
        return True

    def _take(self, kind: str, record: SpanRecord, part: _Part) -> None:
        if kind == names.SEGMENT:
            part.stated = outline.closing(record)
        elif kind in (names.STEP, names.STEPS):
            self._step(outline.played(record))
        elif kind == names.REWARD:
            self._score(outline.scored(record))
        elif kind == names.GRADE:
            self._grades.append(outline.graded(record))

    def _step(self, played: outline.Played) -> None:
        self.steps[played.agent] += played.steps
        self.length = max(self.length, played.position + 1)
        if played.agent is None and (played.reward is not None or played.invalid):
            self.paid = True
            self.sum += math.nan if played.reward is None else played.reward

    def _score(self, scoring: outline.Scored) -> None:
        if scoring.scope != "episode":
            scored = scoring.scope, scoring.parent if scoring.agent is None else scoring.agent
            before = self._others.get(scored)
            if before is None or scoring.when >= before.when:
                self._others[scored] = scoring
            return
        if self._last is None or scoring.when >= self._last.when:
            self._last = scoring
        if scoring.states_total and (self._total is None or scoring.when >= self._total.when):
            self._total = scoring


class Additions:
    """Such additions, by the episode's trace."""

    def __init__(self) -> None:
        self.traces: dict[str, Addition] = {}

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Count a span; whether it is new."""
        addition = self.traces.get(record.trace_id)
        if addition is None:
            addition = self.traces[record.trace_id] = Addition()
        return addition.add(kind, record)

    def pop(self, trace_id: str) -> Addition:
        """What was added to that episode, an empty addition where nothing was; it is taken out."""
        return self.traces.pop(trace_id, None) or Addition()
