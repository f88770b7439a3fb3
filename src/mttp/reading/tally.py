"""
Counting a recording in one pass that never holds an episode.

An open episode keeps the ids of its spans; one that has ended keeps a row of numbers and its trace id.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from mttp.codec import outline
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["Codes", "Extent", "Missing", "Tally"]


class Codes:
    """A column of words as numbers: there are few different ones."""

    __slots__ = ("column", "words")

    def __init__(self) -> None:
        self.column = array("I")
        self.words: dict[str, int] = {}

    def append(self, word: str) -> None:
        """Add a row."""
        self.column.append(self.words.setdefault(word, len(self.words)))


class Extent:
    """Count, mean, lowest and highest of the numbers seen so far."""

    __slots__ = ("count", "max", "mean", "min")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.min = math.inf
        self.max = -math.inf

    def add(self, value: float) -> None:
        """See a number."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.min = min(self.min, value)
        self.max = max(self.max, value)


class Missing(NamedTuple):
    """An episode of which something is missing."""

    trace_id: str
    steps: int
    """Steps that were found."""
    spans: int
    """Spans that were found."""
    recorded: int | None
    """Spans that were recorded; None where the end is missing, which says so."""


class _Place(NamedTuple):
    """When an episode began and ended, and its root's id."""

    start: int
    end: int
    root: str


class _Open:
    """An episode of which some spans were seen, and not all."""

    __slots__ = ("ending", "env", "first", "grades", "scorings", "seen", "steps", "told")

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.steps = 0
        self.env = ""
        self.first: _Place | None = None
        self.told: _Place | None = None
        self.ending: outline.Ending | None = None
        self.scorings: list[tuple[int, int, str, str, dict[str, float]]] | None = None
        self.grades: dict[str, dict[str, float]] | None = None

    @property
    def place(self) -> _Place:
        """What root or marker say; without them, the span that began first: a child of the root."""
        return self.told or self.first or _Place(0, 0, "")

    @property
    def is_whole(self) -> bool:
        return self.ending is not None and len(self.seen) >= self.ending.span_count

    def scores(self) -> dict[str, float]:
        """The components of the last scoring of the whole episode."""
        of_root = [scoring for scoring in self.scorings or () if scoring[2] == self.place.root]
        if not of_root:
            return {}
        *_, span_id, scores = max(of_root, key=lambda scoring: scoring[:2])
        return scores | (self.grades or {}).get(span_id, {})


class Tally:
    """A recording's figures as they grow, span by span."""

    def __init__(self) -> None:
        self.start_times = array("q")
        self.durations = array("d")
        self.returns = array("d")
        self.lengths = array("q")
        self.statuses, self.outcomes, self.envs, self.specs = Codes(), Codes(), Codes(), Codes()
        self.components: defaultdict[str, Extent] = defaultdict(Extent)
        self.tokens = [0, 0]
        self.call_tokens = [0, 0]
        self.duplicates = 0
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self._open: dict[str, _Open] = {}
        self._finished: set[int] = set()
        self._take: dict[str, Any] = {
            names.EPISODE: self._root,
            names.EPISODE_START: self._start,
            names.STEP: self._step,
            names.STEPS: self._step,
            names.REWARD: self._reward,
            names.GRADE: self._grade,
            outline.CALL: self._call,
            outline.OTHER: self._other,
        }

    def add(self, record: SpanRecord) -> None:
        """Count a span, unless it isn't ours or was counted before."""
        kind = outline.kind(record)
        if kind == names.RUN:
            self.runs.setdefault(record.trace_id, {}).setdefault(record.span_id, record)
        elif kind in self.apart:
            self._add_apart(self.apart[kind], int(record.trace_id, 16))
        elif kind:
            self._add(kind, record)

    def _add_apart(self, seen: set[int], trace_id: int) -> None:
        """Count what has a trace of its own."""
        self.duplicates += trace_id in seen
        seen.add(trace_id)

    def _add(self, kind: str, record: SpanRecord) -> None:
        episode = self._open.get(record.trace_id)
        if episode is None:
            if int(record.trace_id, 16) in self._finished:
                self.duplicates += 1
                return
            episode = self._open[record.trace_id] = _Open()
        if record.span_id in episode.seen:
            self.duplicates += 1
            return
        episode.seen.add(record.span_id)
        if episode.first is None or record.start_time < episode.first.start:
            episode.first = _Place(record.start_time, 0, record.parent_id)
        self._take[kind](episode, record)
        if episode.is_whole:
            del self._open[record.trace_id]
            self._finished.add(int(record.trace_id, 16))
            self._close(episode)

    def finish(self) -> Iterator[Missing]:
        """Close what is still open, and say what each lacks."""
        self._finished.clear()
        while self._open:
            trace_id, episode = self._open.popitem()
            recorded = None if episode.ending is None else episode.ending.span_count
            yield Missing(trace_id, episode.steps, len(episode.seen), recorded)
            self._close(episode)

    def _close(self, episode: _Open) -> None:
        ending = episode.ending or outline.Ending(
            "unfinished", "unknown", episode.env, "", return_=None, length=episode.steps, span_count=0
        )
        place = episode.place
        self.start_times.append(place.start)
        self.durations.append((place.end - place.start) / 1e9 if episode.ending else math.nan)
        self.returns.append(math.nan if ending.return_ is None else ending.return_)
        self.lengths.append(ending.length)
        self.statuses.append(ending.status)
        self.outcomes.append(ending.outcome)
        self.envs.append(ending.env)
        self.specs.append(ending.spec)
        for name, score in episode.scores().items():
            if math.isfinite(score):
                self.components[name].add(score)

    # What each kind of span says.

    def _root(self, episode: _Open, record: SpanRecord) -> None:
        episode.ending = outline.ending(record)
        episode.told = _Place(record.start_time, record.end_time, record.span_id)

    def _start(self, episode: _Open, record: SpanRecord) -> None:
        if episode.ending is None:
            episode.told = _Place(record.start_time, 0, record.parent_id)
            episode.env = outline.env(record)

    def _step(self, episode: _Open, record: SpanRecord) -> None:
        episode.steps += outline.steps(record)
        given, sampled = outline.counts(record)
        self.tokens[0] += given
        self.tokens[1] += sampled

    def _call(self, _: _Open, record: SpanRecord) -> None:
        given, sampled = outline.counts(record)
        self.call_tokens[0] += given
        self.call_tokens[1] += sampled

    def _reward(self, episode: _Open, record: SpanRecord) -> None:
        if episode.scorings is None:
            episode.scorings = []
        when, where = (record.start_time, record.end_time), (record.parent_id, record.span_id)
        episode.scorings.append((*when, *where, outline.scores(record)))

    def _grade(self, episode: _Open, record: SpanRecord) -> None:
        if episode.grades is None:
            episode.grades = {}
        episode.grades.setdefault(record.parent_id, {}).update(outline.grade(record))

    def _other(self, _: _Open, __: SpanRecord) -> None:
        """Spans that count as seen, and for nothing else."""
