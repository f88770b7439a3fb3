"""An episode of which some spans were seen, as far as a summary wants to know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from mttp.codec import outline, segments
from mttp.gradings import Grading
from mttp.reading.aggregate import Counts
from mttp.reading.ended import Ended
from mttp.semconv import spans as names
from mttp.spans import Scope, SpanRecord

__all__ = ["Ongoing"]


class _Place(NamedTuple):
    """When an episode began and ended, and its root's id."""

    start: int
    end: int
    root: str


class Ongoing:
    """What the spans of the process that started it say, as they come in."""

    __slots__ = (
        "_gradings",
        "ending",
        "env",
        "first",
        "grades",
        "run",
        "scorings",
        "seen",
        "span_count",
        "steps",
        "task",
        "told",
    )

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.span_count = 0
        """Spans of the episode that these stand for: each step that is in columns is one."""
        self.steps: Counter[str | None] = Counter()
        """By agent."""
        self.run = ""
        self.env = ""
        self.task = ""
        self.first: _Place | None = None
        self.told: _Place | None = None
        self.ending: outline.Ending | None = None
        self.scorings: dict[tuple[str, str], outline.Scored] | None = None
        """The last scoring by what was scored: its scope, and its span or the agent's id."""
        self.grades: list[outline.Graded] | None = None
        self._gradings: tuple[Grading, ...] = ()

    @classmethod
    def of_ended(cls, ended: Ended) -> Ongoing:
        """One that has come to its end."""
        episode = cls()
        episode.ending, episode.told = ended.ending, _Place(*ended.place)
        episode.run, episode._gradings = ended.ending.run, ended.gradings
        if ended.scoring is not None:
            episode.scorings = {("episode", episode.place.root): ended.scoring}
        return episode

    @property
    def place(self) -> _Place:
        """What root or marker say; without them, the span that began first: a child of the root."""
        return self.told or self.first or _Place(0, 0, "")

    @property
    def is_whole(self) -> bool:
        """Whether all spans were seen."""
        return self.ending is not None and self.span_count >= self.ending.span_count

    @property
    def lack(self) -> str:
        """What is missing, in words."""
        return segments.lack(segments.OWNER, self.span_count, self.ending.span_count if self.ending else None)

    def scoring(self) -> outline.Scored | None:
        """The last scoring of the whole episode, with all its components."""
        last = (self.scorings or {}).get(("episode", self.place.root))
        return last and outline.with_grades(last, self.grades or ())

    def gradings(self) -> tuple[Grading, ...]:
        """Those of the last scoring of each step and agent."""
        found = self._gradings
        for (scope, _), scoring in (self.scorings or {}).items():
            if scope != "episode":
                found += outline.with_grades(scoring, self.grades or ()).gradings
        return found

    def ended(self, trace_id: str, scope: Scope, counts: Counts, *, duplicates: int = 0) -> Ended:
        """All of it as one value, once its end was seen."""
        assert self.ending is not None
        return Ended(
            trace_id=trace_id,
            spans=len(self.seen),
            duplicates=duplicates,
            tokens=(counts.tokens[0], counts.tokens[1]),
            call_tokens=(counts.call_tokens[0], counts.call_tokens[1]),
            faults=tuple(counts.faults.items()),
            omissions=tuple(counts.omissions.items()),
            place=(self.place.start, self.place.end, self.place.root),
            ending=self.ending,
            scoring=self.scoring(),
            gradings=self.gradings(),
            scope=scope,
        )

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Take a span of that kind; whether it is new."""
        if record.span_id in self.seen:
            return False
        self.seen.add(record.span_id)
        self.span_count += segments.span_count(record)
        if self.first is None or record.start_time < self.first.start:
            self.first = _Place(record.start_time, 0, record.parent_id)
            self.run = outline.run(record)
        take = _TAKE.get(kind)
        if take is not None:
            take(self, record)
        return True

    # What each kind of span says.

    def _root(self, record: SpanRecord) -> None:
        self.ending = outline.ending(record)
        self.told = _Place(record.start_time, record.end_time, record.span_id)

    def _start(self, record: SpanRecord) -> None:
        if self.ending is None:
            self.told = _Place(record.start_time, 0, record.parent_id)
            self.env, self.task = outline.env(record), outline.task(record)

    def _step(self, record: SpanRecord) -> None:
        played = outline.played(record)
        self.steps[played.agent] += played.steps

    def _reward(self, record: SpanRecord) -> None:
        if self.scorings is None:
            self.scorings = {}
        scoring = outline.scored(record)
        scored = scoring.scope, scoring.parent if scoring.agent is None else scoring.agent
        before = self.scorings.get(scored)
        if before is None or scoring.when >= before.when:
            self.scorings[scored] = scoring

    def _grade(self, record: SpanRecord) -> None:
        if self.grades is None:
            self.grades = []
        self.grades.append(outline.graded(record))


_TAKE: dict[str, Callable[[Ongoing, SpanRecord], None]] = {
    names.EPISODE: Ongoing._root,
    names.EPISODE_START: Ongoing._start,
    names.STEP: Ongoing._step,
    names.STEPS: Ongoing._step,
    names.REWARD: Ongoing._reward,
    names.GRADE: Ongoing._grade,
}
