"""
Counting a recording in one pass that never holds an episode.

An open episode keeps the ids of its spans; one that has ended keeps a row of numbers and its trace id.
What other processes than the one that started it add to an episode is kept until the end: it may come late.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from mttp.codec import segments, summary_fields
from mttp.model.gradings import Scored, gradings
from mttp.model.spans import SpanRecord
from mttp.reading.aggregate import Aggregate
from mttp.reading.assembly import Assembler, EpisodePlace, PartialEpisode, spec, when
from mttp.reading.episode_summary import Counts, EpisodeSummary, UndecidedScoring
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["MissingEpisode", "SpanAggregator"]


class MissingEpisode(NamedTuple):
    """An episode of which something is missing."""

    trace_id: str
    steps: int
    """Steps that were found."""
    lacking: list[str]
    """What each process's part lacks, in words; empty where the end is missing, which says so."""


_SCORED, _STEPS, _TOTAL = 1, 2, 4
"""Whether an episode's scoring states a total, and whether its return is the sum of its steps or a total."""
_IS_TRACE = re.compile("[0-9a-f]{32}").fullmatch
_BASES = {None: 0, "episode": _TOTAL}


class SpanAggregator:
    """A recording's figures as they grow, span by span."""

    def __init__(self) -> None:
        self.aggregate = Aggregate()
        self.duplicates = 0
        self._own = Assembler()
        self.has_open = self._own.has_open
        self._theirs: dict[str, PartialEpisode] = {}
        """What other processes added, by trace id."""
        self._rows: dict[int, int] = {}
        """The row of each episode that is not open, by its trace id."""
        self._roots = array("Q")
        """The ids of the roots' spans, by row."""
        self._flags = array("B")
        self._undecided: dict[int, UndecidedScoring] = {}
        """Scorings of the whole by row; it is not known yet which stands."""
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self.evals: dict[str, set[str]] = {}
        """Ids of the spans of each evaluation, by its id."""
        self._outcomes: dict[str, dict[str, summary_fields.Statement]] = {}
        """The latest statements of outcomes, by the episode's trace id and the span that they are about."""
        self._late: list[tuple[str, str, Scored]] = []
        """Scores that were stated apart from the episodes, with their run and trace id."""
        self._late_grades: dict[str, dict[str, SpanRecord]] = {}
        """Their components, by trace and span id."""

    def add(self, record: SpanRecord | EpisodeSummary) -> None:
        """Count a span, unless it isn't ours or was counted before; or all spans of an episode."""
        if isinstance(record, EpisodeSummary):
            if int(record.row.trace_id, 16) in self._rows:
                self.duplicates += record.spans + record.duplicates
            else:
                self._close(record)
            return
        kind = summary_fields.kind(record)
        if kind == names.RUN:
            self._add_run(record)
        elif kind == names.EVAL_RUN:
            self._add_evaluation(record)
        elif kind in self.apart:
            self._add_apart(kind, record)
        elif kind == names.GRADE and a.EPISODE_ID not in record.attributes:
            grades = self._late_grades.setdefault(record.trace_id, {})
            self.duplicates += record.span_id in grades
            grades.setdefault(record.span_id, record)
        elif kind:
            self._add(kind, record)

    def _add_evaluation(self, record: SpanRecord) -> None:
        seen = self.evals.setdefault(summary_fields.evaluation(record), set())
        self.duplicates += record.span_id in seen
        seen.add(record.span_id)

    def _add_run(self, record: SpanRecord) -> None:
        spans = self.runs.setdefault(record.trace_id, {})
        self.duplicates += record.span_id in spans
        spans.setdefault(record.span_id, record)

    def _add_apart(self, kind: str, record: SpanRecord) -> None:
        """Count what has a trace of its own."""
        seen, trace_id = self.apart[kind], int(record.trace_id, 16)
        if trace_id in seen:
            self.duplicates += 1
            return
        seen.add(trace_id)
        run = self.aggregate.of(summary_fields.run(record))
        run.counts.add(kind, record.attributes)
        if kind == names.GROUP:
            run.groups += 1
        elif kind == names.UPDATE:
            run.add_update(summary_fields.updated(record))
        else:
            run.annotations += 1
            self._add_statement(record)

    def _add_statement(self, record: SpanRecord) -> None:
        """Keep an outcome, or a score, that is stated apart from the episode."""
        if record.attributes.get(a.ANNOTATION_KIND) == "score":
            self._late.append((summary_fields.run(record), record.trace_id, summary_fields.reward(record)))
        elif (stated := summary_fields.statement(record)) is not None:
            before = self._outcomes.setdefault(stated.episode, {}).setdefault(stated.span, stated)
            if stated.order > before.order:
                self._outcomes[stated.episode][stated.span] = stated

    def _add(self, kind: str, record: SpanRecord) -> None:
        """Count a span of an episode."""
        trace_id = record.trace_id
        if segments.segment(record) != segments.OWNER:
            if trace_id not in self._theirs:
                self._theirs[trace_id] = PartialEpisode(self.aggregate.of(summary_fields.run(record)).counts)
            self._theirs[trace_id].add(kind, record)
        elif not self.has_open(trace_id) and int(trace_id, 16) in self._rows:
            self.duplicates += 1
        elif (ended := self._own.add(kind, record)) is not None:
            self._close(ended)

    def _close(self, ended: EpisodeSummary) -> None:
        row = self._rows[int(ended.row.trace_id, 16)] = len(self.aggregate)
        self.aggregate.add(ended)
        self.duplicates += ended.duplicates
        self._roots.append(int(ended.root or "0", 16))
        self._flags.append(_BASES.get(ended.basis, _STEPS) | (_SCORED if ended.is_scored else 0))
        if ended.undecided is not None:
            self._undecided[row] = ended.undecided

    def finish(self) -> Iterator[MissingEpisode]:
        """Close what is still open, add what other processes did, and say what each episode lacks."""
        while self._own.open:
            trace_id, episode = self._own.open.popitem()
            theirs = self._theirs.pop(trace_id, None) or PartialEpisode()
            steps = episode.steps.steps + theirs.steps.steps
            lacking = [*episode.parts.lacking(), *theirs.parts.lacking()]
            yield MissingEpisode(trace_id, steps.total(), lacking if episode.root else [])
            if episode.root is None:
                episode.steps.steps = steps
                episode.first = min(filter(None, (episode.first, theirs.first)), key=_start)
            self._close(episode.ended(trace_id))
            self._enlarge(len(self.aggregate) - 1, theirs)
        for trace_id, theirs in self._theirs.items():
            place = self._rows.get(int(trace_id, 16))
            if place is None:
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), [])
                self._close(theirs.ended(trace_id)._replace(counts=Counts()))
                continue
            if lacking := theirs.parts.lacking():
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), lacking)
            self._enlarge(place, theirs)
        for row, scoring in self._undecided.items():
            self.aggregate.run_of(row).add_gradings(scoring.gradings)
        self._add_late()

    def _add_late(self) -> None:
        """Add what was stated apart from the episodes."""
        for run, trace_id, scored in self._late:
            children = summary_fields.children(self._late_grades.get(trace_id, {}).values())
            graded = summary_fields.with_grades(scored, children)
            self.aggregate.of(run).add_gradings(gradings(graded, scope="late"))
        for trace_id, stated in self._outcomes.items():
            row = self._rows.get(int(trace_id, 16)) if _IS_TRACE(trace_id) else None
            if row is None:
                continue
            about = [stated[span] for span in ("", f"{self._roots[row]:016x}") if span in stated]
            last = max(about, key=lambda one: one.order, default=None)
            if last is not None and last.outcome in ("success", "failure", "unknown"):
                self.aggregate.labels["outcomes"].replace(row, str(last.outcome))

    def _enlarge(self, row: int, theirs: PartialEpisode) -> None:
        """Add to an episode what other processes did and paid."""
        figures, flags = self.aggregate, self._flags[row]
        run = figures.run_of(row)
        self.duplicates += theirs.duplicates
        paying, graded = theirs.scored()
        paying = self._standing(row, paying)
        run.add_gradings(graded)
        run.invalid_step_rewards += theirs.invalid_step_rewards
        run.add_gradings(() if paying is None else gradings(paying[1]))
        if math.isnan(figures.durations[row]):
            return
        return_ = figures.returns[row]
        own: dict[str, Any] = {
            "length": figures.lengths[row],
            "return_": None if math.isnan(return_) else return_,
            "return_basis": "episode" if flags & _TOTAL else "steps" if flags & _STEPS else None,
        }
        own |= segments.combined(own, theirs.steps, paying)
        figures.lengths[row] = own["length"]
        figures.returns[row] = math.nan if own["return_"] is None else own["return_"]
        if paying is not None:
            figures.labels["specs"].replace(row, spec(paying[1]))

    def _standing(self, row: int, theirs: tuple[str, Scored] | None) -> tuple[str, Scored] | None:
        """The scoring by another process, if it stands for the whole."""
        own = self._undecided.get(row)
        if theirs is None or self._flags[row] & _SCORED:
            return None
        if own is not None and not segments.states_total(theirs[1]) and own.when > when(theirs[1]):
            return None
        self._undecided.pop(row, None)
        return theirs


def _start(place: EpisodePlace) -> int:
    return place.start_time
