"""An episode of which some spans were seen, as far as a summary wants to know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mttp.codec import outline, segments
from mttp.reading.ended import Ended
from mttp.semconv import spans as names
from mttp.spans import Scope, SpanRecord

__all__ = ["Counts", "Ongoing"]


class _Place(NamedTuple):
    """When an episode began and ended, and its root's id."""

    start: int
    end: int
    root: str


class Counts:
    """Tokens of policies and of called models, each given and sampled."""

    __slots__ = ("_of", "call_tokens", "tokens")

    def __init__(self) -> None:
        self.tokens = [0, 0]
        self.call_tokens = [0, 0]
        self._of = {outline.CALL: self.call_tokens, names.STEP: self.tokens, names.STEPS: self.tokens}

    def add(self, kind: str, attributes: Mapping[str, Any]) -> None:
        """Count those of a span of that kind."""
        counts = self._of.get(kind)
        if counts is not None:
            given, sampled = outline.counts(attributes)
            counts[0] += given
            counts[1] += sampled


class Ongoing:
    """What the spans of the process that started it say, as they come in."""

    __slots__ = ("ending", "env", "first", "grades", "scorings", "seen", "steps", "told")

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.steps: Counter[str | None] = Counter()
        """By agent."""
        self.env = ""
        self.first: _Place | None = None
        self.told: _Place | None = None
        self.ending: outline.Ending | None = None
        self.scorings: list[outline.Scored] | None = None
        self.grades: dict[str, dict[str, float]] | None = None

    @classmethod
    def of_ended(cls, ended: Ended) -> Ongoing:
        """One that has come to its end."""
        episode = cls()
        episode.ending, episode.told = ended.ending, _Place(*ended.place)
        episode.scorings = [ended.scoring] if ended.scoring else None
        return episode

    @property
    def place(self) -> _Place:
        """What root or marker say; without them, the span that began first: a child of the root."""
        return self.told or self.first or _Place(0, 0, "")

    @property
    def is_whole(self) -> bool:
        """Whether all spans were seen."""
        return self.ending is not None and len(self.seen) >= self.ending.span_count

    @property
    def lack(self) -> str:
        """What is missing, in words."""
        return segments.lack(segments.OWNER, len(self.seen), self.ending.span_count if self.ending else None)

    def scoring(self) -> outline.Scored | None:
        """The last scoring of the whole episode, with all its components."""
        of_root = [scoring for scoring in self.scorings or () if scoring.parent == self.place.root]
        last = max(of_root, key=lambda scoring: scoring.when, default=None)
        grades = (self.grades or {}).get(last.span, {}) if last else {}
        return last and last._replace(scores=last.scores | grades)

    def ended(self, trace_id: str, scope: Scope, counts: Counts, *, duplicates: int = 0) -> Ended:
        """All of it as one value, once its end was seen."""
        assert self.ending is not None
        return Ended(
            trace_id=trace_id,
            spans=len(self.seen),
            duplicates=duplicates,
            tokens=(counts.tokens[0], counts.tokens[1]),
            call_tokens=(counts.call_tokens[0], counts.call_tokens[1]),
            place=(self.place.start, self.place.end, self.place.root),
            ending=self.ending,
            scoring=self.scoring(),
            scope=scope,
        )

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Take a span of that kind; whether it is new."""
        if record.span_id in self.seen:
            return False
        self.seen.add(record.span_id)
        if self.first is None or record.start_time < self.first.start:
            self.first = _Place(record.start_time, 0, record.parent_id)
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
            self.env = outline.env(record)

    def _step(self, record: SpanRecord) -> None:
        played = outline.played(record)
        self.steps[played.agent] += played.steps

    def _reward(self, record: SpanRecord) -> None:
        if outline.scores_whole(record):
            if self.scorings is None:
                self.scorings = []
            self.scorings.append(outline.scored(record))

    def _grade(self, record: SpanRecord) -> None:
        if outline.scores_whole(record):
            if self.grades is None:
                self.grades = {}
            self.grades.setdefault(record.parent_id, {}).update(outline.grade(record))


_TAKE: dict[str, Callable[[Ongoing, SpanRecord], None]] = {
    names.EPISODE: Ongoing._root,
    names.EPISODE_START: Ongoing._start,
    names.STEP: Ongoing._step,
    names.STEPS: Ongoing._step,
    names.REWARD: Ongoing._reward,
    names.GRADE: Ongoing._grade,
}
