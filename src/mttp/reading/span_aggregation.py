"""Aggregates the spans of a recording in one pass, without building episodes."""

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
    """An episode with missing spans."""

    trace_id: str
    steps: int
    """Number of steps that were found."""
    lacking: list[str]
    """What each part lacks, as text; empty if the end of the episode is missing."""


_SCORED, _STEPS, _TOTAL = 1, 2, 4
"""Flags of an episode: its scoring has a total; its return is a sum of steps; its return is a total."""
_IS_TRACE = re.compile("[0-9a-f]{32}").fullmatch
_BASES = {None: 0, "episode": _TOTAL}


class SpanAggregator:
    """
    Aggregates spans in any order, and drops repeated ones.

    An open episode keeps the ids of its spans, an ended one a row of numbers and its trace id.
    Spans of other processes than the one that started an episode are kept until `finish`.
    """

    def __init__(self) -> None:
        self.aggregate = Aggregate()
        self.duplicates = 0
        self._own = Assembler()
        self.has_open = self._own.has_open
        self._theirs: dict[str, PartialEpisode] = {}
        """Parts that other processes recorded, by trace id."""
        self._rows: dict[int, int] = {}
        """Row of each closed episode by trace id."""
        self._roots = array("Q")
        """Id of the root span by row."""
        self._flags = array("B")
        self._undecided: dict[int, UndecidedScoring] = {}
        """Scorings by row that another process's scoring may replace."""
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self.evals: dict[str, set[str]] = {}
        """Span ids of each evaluation by evaluation id."""
        self._outcomes: dict[str, dict[str, summary_fields.Statement]] = {}
        """The latest outcome annotations by trace id and annotated span."""
        self._late: list[tuple[str, str, Scored]] = []
        """Scores of annotations, with their run and trace id."""
        self._late_grades: dict[str, dict[str, SpanRecord]] = {}
        """Grades of these scores by trace and span id."""

    def add(self, record: SpanRecord | EpisodeSummary) -> None:
        """Count a span of mttp, unless it is a repeated one; or an episode."""
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
        """Count a group, an update or an annotation."""
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
            self._add_annotation(record)

    def _add_annotation(self, record: SpanRecord) -> None:
        """Keep the outcome or the score of an annotation."""
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
        """Add the row of an episode."""
        row = self._rows[int(ended.row.trace_id, 16)] = len(self.aggregate)
        self.aggregate.add(ended)
        self.duplicates += ended.duplicates
        self._roots.append(int(ended.root or "0", 16))
        self._flags.append(_BASES.get(ended.basis, _STEPS) | (_SCORED if ended.is_scored else 0))
        if ended.undecided is not None:
            self._undecided[row] = ended.undecided

    def finish(self) -> Iterator[MissingEpisode]:
        """Close open episodes, merge the parts of other processes, and yield episodes with missing spans."""
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
            self._merge_part(len(self.aggregate) - 1, theirs)
        for trace_id, theirs in self._theirs.items():
            place = self._rows.get(int(trace_id, 16))
            if place is None:
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), [])
                self._close(theirs.ended(trace_id)._replace(counts=Counts()))
                continue
            if lacking := theirs.parts.lacking():
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), lacking)
            self._merge_part(place, theirs)
        for row, scoring in self._undecided.items():
            self.aggregate.run_of(row).add_gradings(scoring.gradings)
        self._add_late()

    def _add_late(self) -> None:
        """Add the scores and outcomes of annotations."""
        for run, trace_id, scored in self._late:
            children = summary_fields.children(self._late_grades.get(trace_id, {}).values())
            graded = summary_fields.with_grades(scored, children)
            self.aggregate.of(run).add_gradings(gradings(graded, scope="late"))
        for trace_id, stated in self._outcomes.items():
            row = self._rows.get(int(trace_id, 16)) if _IS_TRACE(trace_id) else None
            if row is None:
                continue
            of_episode = [stated[span] for span in ("", f"{self._roots[row]:016x}") if span in stated]
            last = max(of_episode, key=lambda one: one.order, default=None)
            if last is not None and last.outcome in ("success", "failure", "unknown"):
                self.aggregate.labels["outcomes"].replace(row, str(last.outcome))

    def _merge_part(self, row: int, theirs: PartialEpisode) -> None:
        """Merge the part that other processes recorded into an episode."""
        figures, flags = self.aggregate, self._flags[row]
        run = figures.run_of(row)
        self.duplicates += theirs.duplicates
        effective, graded = theirs.scored()
        effective = self._effective(row, effective)
        run.add_gradings(graded)
        run.invalid_step_rewards += theirs.invalid_step_rewards
        run.add_gradings(() if effective is None else gradings(effective[1]))
        if math.isnan(figures.durations[row]):
            return
        return_ = figures.returns[row]
        own: dict[str, Any] = {
            "length": figures.lengths[row],
            "return_": None if math.isnan(return_) else return_,
            "return_basis": "episode" if flags & _TOTAL else "steps" if flags & _STEPS else None,
        }
        own |= segments.combined(own, theirs.steps, effective)
        figures.lengths[row] = own["length"]
        figures.returns[row] = math.nan if own["return_"] is None else own["return_"]
        if effective is not None:
            figures.labels["specs"].replace(row, spec(effective[1]))

    def _effective(self, row: int, theirs: tuple[str, Scored] | None) -> tuple[str, Scored] | None:
        """The other process's scoring, if it is the effective one of the episode."""
        own = self._undecided.get(row)
        if theirs is None or self._flags[row] & _SCORED:
            return None
        if own is not None and not segments.states_total(theirs[1]) and own.when > when(theirs[1]):
            return None
        self._undecided.pop(row, None)
        return theirs


def _start(place: EpisodePlace) -> int:
    return place.start_time
