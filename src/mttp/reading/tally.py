"""
Counting a recording in one pass that never holds an episode.

An open episode keeps the ids of its spans; one that has ended keeps a row of numbers and its trace id.
What other processes than the one that started it add to an episode is kept until the end: it may come late.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from mttp.codec import outline, segments
from mttp.reading.additions import Addition, Additions
from mttp.reading.ended import Ended
from mttp.reading.ongoing import Counts, Ongoing
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

    def replace(self, row: int, word: str) -> None:
        """Change a row."""
        self.column[row] = self.words.setdefault(word, len(self.words))


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
    lacking: list[str]
    """What each process's part lacks, in words; empty where the end is missing, which says so."""


_UNFINISHED, _PAID_BY_STEPS, _PAID, _SCORED = 1, 2, 4, 8
"""What must be known of an episode when another process's part of it comes: whether it has no end, whether \
its return is the sum of its steps or a total, and whether the last scoring states one."""


class Tally:
    """A recording's figures as they grow, span by span."""

    def __init__(self) -> None:
        self.start_times = array("q")
        self.durations = array("d")
        self.returns = array("d")
        self.lengths = array("q")
        self.statuses, self.outcomes, self.envs, self.specs = Codes(), Codes(), Codes(), Codes()
        self.components: defaultdict[str, Extent] = defaultdict(Extent)
        self.counts = Counts()
        self.duplicates = 0
        self._traces = array("Q")
        self._flags = array("B")
        self._undecided: dict[int, outline.Scored] = {}
        self._additions = Additions()
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self.evals: dict[str, set[str]] = {}
        """Ids of the spans of each evaluation, by its id."""
        self._open: dict[str, Ongoing] = {}
        self._finished: set[int] = set()

    def has_open(self, trace_id: str) -> bool:
        """Whether some spans of that episode were counted, and not all."""
        return trace_id in self._open

    def has_ended(self, trace_id: str) -> bool:
        """Whether all spans of that episode were counted."""
        return int(trace_id, 16) in self._finished

    def add(self, record: SpanRecord | Ended) -> None:
        """Count a span, unless it isn't ours or was counted before; or all spans of an episode."""
        if isinstance(record, Ended):
            self._add_ended(record)
            return
        kind = outline.kind(record)
        if kind == names.RUN:
            self.runs.setdefault(record.trace_id, {}).setdefault(record.span_id, record)
        elif kind == names.EVAL_RUN:
            self._add_evaluation(record)
        elif kind in self.apart:
            self._add_apart(self.apart[kind], int(record.trace_id, 16))
        elif kind:
            is_own = segments.segment(record) == segments.OWNER
            if self._add(kind, record) if is_own else self._additions.add(kind, record):
                self.counts.add(kind, record.attributes)
            else:
                self.duplicates += 1

    def _add_evaluation(self, record: SpanRecord) -> None:
        seen = self.evals.setdefault(outline.evaluation(record), set())
        self.duplicates += record.span_id in seen
        seen.add(record.span_id)

    def _add_apart(self, seen: set[int], trace_id: int) -> None:
        """Count what has a trace of its own."""
        self.duplicates += trace_id in seen
        seen.add(trace_id)

    def _add(self, kind: str, record: SpanRecord) -> bool:
        """Count a span of the process that started the episode; whether it is new."""
        episode = self._open.get(record.trace_id)
        if episode is None:
            if int(record.trace_id, 16) in self._finished:
                return False
            episode = self._open[record.trace_id] = Ongoing()
        if not episode.add(kind, record):
            return False
        if episode.is_whole:
            del self._open[record.trace_id]
            self._finished.add(int(record.trace_id, 16))
            self._close(record.trace_id, episode)
        return True

    def _add_ended(self, ended: Ended) -> None:
        """Count an episode of which none, or all spans were counted."""
        self.duplicates += ended.duplicates
        if self.has_ended(ended.trace_id):
            self.duplicates += ended.spans
            return
        self._finished.add(int(ended.trace_id, 16))
        for counts, found in (
            (self.counts.tokens, ended.tokens),
            (self.counts.call_tokens, ended.call_tokens),
        ):
            counts[0] += found[0]
            counts[1] += found[1]
        self._close(ended.trace_id, Ongoing.of_ended(ended))

    def finish(self) -> Iterator[Missing]:
        """Close what is still open, add what other processes did, and say what each episode lacks."""
        self._finished.clear()
        while self._open:
            trace_id, episode = self._open.popitem()
            addition = self._additions.pop(trace_id)
            yield Missing(
                trace_id,
                episode.steps.total() + addition.steps.total(),
                [words for words in (episode.lack, *addition.lacking()) if words] if episode.ending else [],
            )
            self._close(trace_id, episode)
            self._enlarge(len(self.returns) - 1, addition, episode.steps)
        rows = {trace_id: row for row, trace_id in self._rows() if trace_id in self._additions.traces}
        for trace_id, addition in self._additions.traces.items():
            if trace_id not in rows:
                yield Missing(trace_id, addition.steps.total(), [])
                rows[trace_id] = len(self.returns)
                self._close(trace_id, Ongoing())
            elif lacking := addition.lacking():
                yield Missing(trace_id, addition.steps.total(), lacking)
            self._enlarge(rows[trace_id], addition, Counter())
        for scoring in self._undecided.values():
            self._add_scores(scoring)

    def _rows(self) -> Iterator[tuple[int, str]]:
        for row in range(len(self.returns)):
            high, low = self._traces[2 * row : 2 * row + 2]
            yield row, f"{high:016x}{low:016x}"

    def _close(self, trace_id: str, episode: Ongoing) -> None:
        ending = episode.ending or outline.Ending(
            status="unfinished",
            outcome="unknown",
            env=episode.env,
            spec="",
            return_=None,
            return_basis="",
            length=max(episode.steps.values(), default=0),
            span_count=0,
        )
        place = episode.place
        self._traces.extend((int(trace_id[:16], 16), int(trace_id[16:], 16)))
        self.start_times.append(place.start)
        self.durations.append((place.end - place.start) / 1e9 if episode.ending else math.nan)
        self.returns.append(math.nan if ending.return_ is None else ending.return_)
        self.lengths.append(ending.length)
        self.statuses.append(ending.status)
        self.outcomes.append(ending.outcome)
        self.envs.append(ending.env)
        self.specs.append(ending.spec)
        scoring = episode.scoring()
        self._flags.append(
            (0 if episode.ending else _UNFINISHED)
            | (_PAID_BY_STEPS if ending.return_basis == "steps" else 0)
            | (_PAID if ending.return_basis == "episode" else 0)
            | (_SCORED if scoring is not None and scoring.states_total else 0)
        )
        if scoring is not None and scoring.states_total:
            self._add_scores(scoring)
        elif scoring is not None:
            self._undecided[len(self.returns) - 1] = scoring

    def _enlarge(self, row: int, addition: Addition, steps: Counter[str | None]) -> None:
        """Add to an episode what other processes did and paid; `steps` are its own where it is unfinished."""
        flags = self._flags[row]
        if flags & _UNFINISHED:
            self.lengths[row] = max((steps + addition.steps).values(), default=0)
            if addition.start and not self.start_times[row]:
                self.start_times[row] = addition.start
        else:
            self.lengths[row] = max(self.lengths[row], addition.length)
            if addition.paid and not flags & _PAID:
                before = self.returns[row] if flags & _PAID_BY_STEPS else 0.0
                self.returns[row] = before + addition.sum
        scoring = addition.scoring()
        if scoring is None or flags & _SCORED:
            return
        own = self._undecided.pop(row, None)
        if own is not None and not scoring.states_total and own.when > scoring.when:
            scoring = own
        self._add_scores(scoring)
        if scoring.states_total and not flags & (_PAID | _UNFINISHED):
            self.returns[row] = math.nan if scoring.value is None else scoring.value
            self.specs.replace(row, scoring.spec)

    def _add_scores(self, scoring: outline.Scored) -> None:
        for name, score in scoring.scores.items():
            if math.isfinite(score):
                self.components[name].add(score)
