"""Aggregates the spans of a recording in one pass, without building episodes."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from mttp.codec import segments, summary_fields
from mttp.codec.kinds import is_call_operation
from mttp.model.counting import is_return_counted
from mttp.model.gradings import Scored, gradings
from mttp.model.spans import SpanRecord
from mttp.reading.aggregate import VERDICT_SOURCE, Aggregate
from mttp.reading.assembly import Assembler, EpisodePlace, PartialEpisode, spec, when
from mttp.reading.episode_figures import FigureCounts, SummaryFigures, known, labels, reward_figures
from mttp.reading.episode_summary import Counts, EpisodeSummary, UndecidedScoring
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import known_values

__all__ = ["FigureRows", "MissingEpisode", "SpanAggregator"]


class MissingEpisode(NamedTuple):
    """An episode with missing spans."""

    trace_id: str
    steps: int
    """Number of steps that were found."""
    lacking: list[str]
    """What each part lacks, as text; empty if the end of the episode is missing."""


_SCORED, _STEPS, _TOTAL, _REWARDED = 1, 2, 4, 8
"""
Flags of an episode: its scoring has a total; its return is a sum of steps; its return is a total; a reward of
it or of a step is recorded.
"""
_About: TypeAlias = tuple[str, str, str]
"""Kind and key of a statement, and the trace id of its episode."""
_IS_TRACE = re.compile("[0-9a-f]{32}").fullmatch
_BASES = {None: 0, "episode": _TOTAL}


class FigureRows(Protocol):
    """The figures of episodes by row, such as a list."""

    def __iter__(self) -> Iterator[SummaryFigures]: ...

    def append(self, figures: SummaryFigures, /) -> None:
        """Add a row."""

    def __getitem__(self, row: int, /) -> SummaryFigures: ...

    def __setitem__(self, row: int, figures: SummaryFigures, /) -> None: ...


class SpanAggregator:
    """
    Aggregates spans in any order, and drops repeated ones.

    An open episode keeps the ids of its spans, an ended one a row of numbers and its trace id.
    Spans of other processes than the one that started an episode are kept until `finish`.
    With `figures`, the figures of each episode for a study are kept instead of its row; of the aggregate only
    groups, updates and annotations are counted. With `counts`, both are kept.
    `rows` keeps the figures, by default a list.
    """

    def __init__(
        self, *, figures: bool = False, counts: bool | None = None, rows: FigureRows | None = None
    ) -> None:
        self.aggregate = Aggregate()
        self.figures: FigureRows = list[SummaryFigures]() if rows is None else rows
        """The figures of each closed episode, by row; complete after `finish`."""
        self._has_counts = not figures if counts is None else counts
        self._unplaced: set[str] = set()
        """Trace ids with model calls of other libraries, or whose step is not known."""
        self._has_figures = figures
        self.duplicates = 0
        self._own = Assembler(figures=figures)
        self.has_open = self._own.has_open
        self._theirs: dict[str, PartialEpisode] = {}
        """Parts that other processes recorded, by trace id."""
        self._rows: dict[int, int] = {}
        """Row of each closed episode by trace id."""
        self.by_run: Counter[str] = Counter()
        """Number of closed episodes by run id."""
        self._roots = array("Q")
        """Id of the root span by row."""
        self._flags = array("B")
        self._undecided: dict[int, UndecidedScoring] = {}
        """Scorings by row that another process's scoring may replace."""
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self.evals: dict[str, set[str]] = {}
        """Span ids of each evaluation by evaluation id."""
        self._statements: dict[_About, dict[str, tuple[summary_fields.Statement, Scored | None]]] = {}
        """The latest statements by kind, key and trace id, then by annotated span."""
        self._new_statements: set[_About] = set()
        """Those that are not in the figures yet."""
        self._new_members: set[str] = set()
        """Trace ids of members of groups whose figures do not name the group yet."""
        self._late: list[tuple[str, str, str, Scored]] = []
        """Scores of annotations, with their run, their trace id and that of the episode."""
        self._groups: dict[str, tuple[tuple[int, str], str, Any]] = {}
        """Start and span id of the last group of each member, its id and the advantage, by trace id."""
        self._by_group: set[int] = set()
        """Rows whose advantage is that of their group."""
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
        elif is_call_operation(record.attributes):
            self._unplaced.add(record.trace_id)

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
            self._add_members(record)
        elif kind == names.UPDATE:
            run.add_update(summary_fields.updated(record))
        else:
            run.annotations += 1
            if record.attributes.get(a.ANNOTATION_SOURCE) == VERDICT_SOURCE:
                from mttp.codec.annotations import decode as decode_annotation  # loads numpy

                run.add_verdict(decode_annotation(record))
            self._add_annotation(record)

    def _add_members(self, record: SpanRecord) -> None:
        """Keep the last group of each member."""
        group, members = summary_fields.members(record)
        order = record.start_time, record.span_id
        advantages = summary_fields.advantages(record)
        if len(advantages) != len(members):
            advantages = [None] * len(members)
        for trace_id, advantage in zip(members, advantages, strict=True):
            if not self._has_figures and self._has_own_advantage(trace_id):
                continue
            if trace_id not in self._groups or self._groups[trace_id][0] <= order:
                self._groups[trace_id] = order, group, advantage
                self._new_members.add(trace_id)

    def _add_annotation(self, record: SpanRecord) -> None:
        """Keep the outcome, the score or the user-supplied value of an annotation."""
        scored = None
        if record.attributes.get(a.ANNOTATION_KIND) == "score":
            scored = summary_fields.reward(record)
            target = str(record.attributes.get(a.ANNOTATION_TARGET_TRACE_ID, ""))
            self._late.append((summary_fields.run(record), record.trace_id, target, scored))
        stated = summary_fields.statement(record)
        if stated is None or (stated.kind == "fact" and not self._has_figures):
            return
        about = stated.kind, stated.key, stated.episode
        latest = self._statements.setdefault(about, {})
        if stated.span not in latest or stated.order > latest[stated.span][0].order:
            latest[stated.span] = stated, scored
            self._new_statements.add(about)

    def _add(self, kind: str, record: SpanRecord) -> None:
        """Count a span of an episode."""
        trace_id = record.trace_id
        if segments.segment(record) != segments.OWNER:
            if trace_id not in self._theirs:
                counts = self.aggregate.of(summary_fields.run(record)).counts
                self._theirs[trace_id] = PartialEpisode(counts, figures=self._has_figures)
            self._theirs[trace_id].add(kind, record)
        elif not self.has_open(trace_id) and int(trace_id, 16) in self._rows:
            self.duplicates += 1
        elif (ended := self._own.add(kind, record)) is not None:
            self._close(ended)

    def _close(self, ended: EpisodeSummary) -> None:
        """Add the row of an episode."""
        row = self._rows[int(ended.row.trace_id, 16)] = len(self._roots)
        self.by_run[ended.row.run] += 1
        if self._has_counts:
            self.aggregate.add(ended)
        self.duplicates += ended.duplicates
        self._roots.append(int(ended.root or "0", 16))
        scored, rewarded = _SCORED * ended.is_scored, _REWARDED * ended.is_rewarded
        self._flags.append(_BASES.get(ended.basis, _STEPS) | scored | rewarded)
        if ended.figures is not None and self._has_figures:
            self.figures.append(ended.figures)
        if ended.has_unplaced_calls:
            self._unplaced.add(ended.row.trace_id)
        if ended.undecided is not None:
            self._undecided[row] = ended.undecided

    def begun_by_run(self) -> Counter[str]:
        """Return the number of episodes by run id, also of those that are open."""
        begun = Counter(dict(self.by_run))  # another thread may add episodes meanwhile
        begun.update(one.place.text(a.RUN_ID) for one in [*self._own.open.values()])
        return begun

    @property
    def unplaced(self) -> set[str]:
        """Trace ids of the episodes with model calls whose step is not known."""
        return {trace_id for trace_id in self._unplaced if self._row(trace_id) is not None}

    def finish(self) -> Iterator[MissingEpisode]:
        """Close open episodes, merge the parts of other processes, and yield episodes with missing spans."""
        while self._own.open:
            trace_id, episode = self._own.open.popitem()
            theirs = self._theirs.pop(trace_id, None) or PartialEpisode(figures=self._has_figures)
            steps = episode.steps.steps + theirs.steps.steps
            lacking = [*episode.parts.lacking(), *theirs.parts.lacking()]
            yield MissingEpisode(trace_id, steps.total(), lacking if episode.root else [])
            if episode.root is None:
                episode.steps.steps = steps
                episode.first = min(filter(None, (episode.first, theirs.first)), key=_start)
            self._close(episode.ended(trace_id))
            self._merge_part(len(self._roots) - 1, trace_id, theirs)
        for trace_id, theirs in self._theirs.items():
            place = self._rows.get(int(trace_id, 16))
            if place is None:
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), [])
                self._close(theirs.ended(trace_id)._replace(counts=Counts()))
                continue
            if lacking := theirs.parts.lacking():
                yield MissingEpisode(trace_id, theirs.steps.steps.total(), lacking)
            self._merge_part(place, trace_id, theirs)
        for row, scoring in self._undecided.items() if self._has_counts else ():
            self.aggregate.run_of(row).add_gradings(scoring.gradings)
        for run, trace_id, target, scored in self._late:
            graded = self._graded(trace_id, scored)
            self.aggregate.of(run).add_gradings(gradings(graded, scope="late", episode=target))
        self._add_late()

    def settle(self) -> None:
        """
        Merge what arrived since the last call about closed episodes: parts of other processes, later facts.

        It may be called between spans, where a recording is followed; `finish` ends with it.
        """
        for trace_id in [*self._theirs]:
            place = self._rows.get(int(trace_id, 16))
            if place is not None:
                self._merge_part(place, trace_id, self._theirs.pop(trace_id))
        self._add_late()

    def _add_late(self) -> None:
        """Add the values of annotations, and the groups of members."""
        for about in [*self._new_statements]:
            kind, key, trace_id = about
            stated, row = self._statements[about], self._row(trace_id)
            if row is None:
                continue
            self._new_statements.discard(about)
            of_episode = [stated[span] for span in ("", f"{self._roots[row]:016x}") if span in stated]
            last = max(of_episode, key=lambda one: one[0].order, default=None)
            if last is not None and kind == "outcome":
                self._set_outcome(row, last[0].value)
            elif last is not None and kind == "advantage":
                self._set_advantage(row, last[0].value)
            elif last is not None and kind == "fact":
                others = {name: value for name, value in self.figures[row].metadata.items() if name != key}
                self._replace(row, metadata=others | labels({key: last[0].value}))
            elif last is not None and last[1] is not None and not self._flags[row] & _REWARDED:
                self._set_reward(row, self._graded(last[0].trace_id, last[1]))
        for trace_id in [*self._new_members]:
            row = self._row(trace_id)
            if row is None:
                continue
            self._new_members.discard(trace_id)
            _, group, advantage = self._groups[trace_id]
            if self._has_figures and self.figures[row].group is None:
                self._replace(row, group=group)
            if self._has_counts and (row in self._by_group or math.isnan(self.aggregate.advantages[row])):
                self._set_advantage(row, advantage)
                self._by_group.add(row)

    def _graded(self, trace_id: str, scored: Scored) -> Scored:
        """The score of an annotation with its grades."""
        children = summary_fields.children(self._late_grades.get(trace_id, {}).values())
        return summary_fields.with_grades(scored, children)

    def _row(self, trace_id: str) -> int | None:
        return self._rows.get(int(trace_id, 16)) if _IS_TRACE(trace_id) else None

    def _has_own_advantage(self, trace_id: str) -> bool:
        row = self._row(trace_id)
        return (
            row is not None and row not in self._by_group and not math.isnan(self.aggregate.advantages[row])
        )

    def _set_advantage(self, row: int, advantage: object) -> None:
        if self._has_counts and isinstance(advantage, (int, float)) and not isinstance(advantage, bool):
            self.aggregate.advantages[row] = advantage
            self._by_group.discard(row)

    def _set_outcome(self, row: int, outcome: object) -> None:
        if outcome not in known_values(a.EPISODE_OUTCOME):
            return
        if self._has_figures:
            self._replace(row, outcome=str(outcome))
        if self._has_counts:
            self.aggregate.labels["outcomes"].replace(row, str(outcome))

    def _set_reward(self, row: int, scored: Scored) -> None:
        """Set a late score, which is the return, too, of an episode without any reward."""
        is_return = scored.status == "ok"
        if self._has_figures:
            return_ = {"return_": known(scored.value)} if is_return else {}
            self._replace(row, **reward_figures(scored), **return_)
        if self._has_counts and is_return and scored.value is not None:
            self.aggregate.returns[row] = scored.value

    def _replace(self, row: int, **changes: Any) -> None:
        self.figures[row] = self.figures[row]._replace(**changes)

    def _merge_part(self, row: int, trace_id: str, theirs: PartialEpisode) -> None:
        """Merge the part that other processes recorded into an episode."""
        self.duplicates += theirs.duplicates
        effective, graded = theirs.scored(trace_id)
        effective = self._effective(row, effective)
        if theirs.is_rewarded:
            self._flags[row] |= _REWARDED
        if theirs.figured is not None:
            self._merge_figures(row, theirs, theirs.figured, effective)
        if not self._has_counts:
            return
        figures = self.aggregate
        run = figures.run_of(row)
        run.add_gradings(graded)
        run.invalid_step_rewards += theirs.invalid_step_rewards
        run.add_gradings(() if effective is None else gradings(effective[1], episode=trace_id))
        if math.isnan(figures.durations[row]):
            return
        return_ = figures.returns[row]
        own = self._combined(
            row, figures.lengths[row], None if math.isnan(return_) else return_, theirs, effective
        )
        figures.lengths[row] = own["length"]
        figures.returns[row] = math.nan if own["return_"] is None else own["return_"]
        if effective is not None:
            figures.labels["specs"].replace(row, spec(effective[1]))
            figures.is_return_counted[row] = is_return_counted(
                own["return_"], effective[1].value, effective[1].status
            )

    def _merge_figures(
        self, row: int, theirs: PartialEpisode, counted: FigureCounts, effective: tuple[str, Scored] | None
    ) -> None:
        """Merge what other processes add to the figures."""
        own, (count, nanoseconds) = self.figures[row], counted.calls()
        changes: dict[str, Any] = {} if effective is None else reward_figures(effective[1])
        if counted.tokens is not None:
            changes["prompt_tokens"] = (own.prompt_tokens or 0) + counted.tokens[0]
            changes["completion_tokens"] = (own.completion_tokens or 0) + counted.tokens[1]
        if own.duration is not None:
            found = self._combined(row, own.length or 0, own.return_, theirs, effective)
            changes |= {"length": found["length"], "return_": known(found["return_"])}
        self._replace(
            row,
            **changes,
            step_scores=own.step_scores.merged(theirs.step_scores()),
            metrics=counted.metrics(own.metrics),
            metadata=counted.metadata(own.metadata),
            call_count=own.call_count + count,
            call_nanoseconds=own.call_nanoseconds + nanoseconds,
        )
        if counted.has_unplaced_calls:
            self._unplaced.add(own.trace_id)

    def _combined(
        self,
        row: int,
        length: int,
        return_: float | None,
        theirs: PartialEpisode,
        effective: tuple[str, Scored] | None,
    ) -> dict[str, Any]:
        """Length and return of an episode with what other processes did."""
        flags = self._flags[row]
        basis = "episode" if flags & _TOTAL else "steps" if flags & _STEPS else None
        own = {"length": length, "return_": return_, "return_basis": basis}
        return own | segments.combined(own, theirs.steps, effective)

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
