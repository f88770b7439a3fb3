"""
Counting a recording in one pass that never holds an episode.

An open episode keeps the ids of its spans; one that has ended keeps a row of numbers and its trace id.
What other processes than the one that started it add to an episode is kept until the end: it may come late.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from mttp.codec import outline, segments
from mttp.reading.additions import Addition, Additions
from mttp.reading.aggregate import Aggregate, Row
from mttp.reading.ended import Ended
from mttp.reading.ongoing import Ongoing
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["Missing", "Tally"]


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
        self.aggregate = Aggregate()
        self.duplicates = 0
        self._traces = array("Q")
        self._flags = array("B")
        self._undecided: dict[int, outline.Scored] = {}
        self._additions = Additions()
        self.runs: dict[str, dict[str, SpanRecord]] = {}
        self.apart: dict[str, set[int]] = {names.GROUP: set(), names.UPDATE: set(), names.ANNOTATE: set()}
        self.evals: dict[str, set[str]] = {}
        """Ids of the spans of each evaluation, by its id."""
        self._outcomes: dict[str, outline.Statement] = {}
        """The latest statement of an outcome, by the trace id of the episode."""
        self._late: dict[str, tuple[str, outline.Scored]] = {}
        """Late scores with their run, by the trace id of the annotation."""
        self._late_grades: dict[str, list[outline.Graded]] = {}
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
            self._add_run(record)
        elif kind == names.EVAL_RUN:
            self._add_evaluation(record)
        elif kind in self.apart:
            self._add_apart(kind, record)
        elif kind == names.GRADE and a.EPISODE_ID not in record.attributes:
            self._late_grades.setdefault(record.trace_id, []).append(outline.graded(record))
        elif kind:
            is_own = segments.segment(record) == segments.OWNER
            if self._add(kind, record) if is_own else self._additions.add(kind, record):
                self.aggregate.of(outline.run(record)).counts.add(kind, record.attributes)
            else:
                self.duplicates += 1

    def _add_evaluation(self, record: SpanRecord) -> None:
        seen = self.evals.setdefault(outline.evaluation(record), set())
        self.duplicates += record.span_id in seen
        seen.add(record.span_id)

    def _add_run(self, record: SpanRecord) -> None:
        spans = self.runs.setdefault(record.trace_id, {})
        spans.setdefault(record.span_id, record)

    def _add_apart(self, kind: str, record: SpanRecord) -> None:
        """Count what has a trace of its own."""
        seen, trace_id = self.apart[kind], int(record.trace_id, 16)
        if trace_id in seen:
            self.duplicates += 1
            return
        seen.add(trace_id)
        run = self.aggregate.of(outline.run(record))
        run.counts.add(kind, record.attributes)
        if kind == names.GROUP:
            run.groups += 1
        elif kind == names.UPDATE:
            run.update(outline.updated(record))
        else:
            run.annotations += 1
            self._add_statement(record)

    def _add_statement(self, record: SpanRecord) -> None:
        """Keep an outcome, or a score, that is stated apart from the episode."""
        stated, scoring = outline.statement(record)
        if scoring is not None:
            self._late[record.trace_id] = outline.run(record), scoring
        elif stated is not None and not stated.is_of_step and not stated.step_span:
            before = self._outcomes.get(stated.episode)
            if before is None or stated.order > before.order:
                self._outcomes[stated.episode] = stated

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
        run = self.aggregate.of(ended.ending.run)
        run.counts.merge(ended.tokens, ended.call_tokens, ended.faults, ended.omissions)
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
            self._enlarge(len(self.aggregate) - 1, addition, episode.steps)
        rows = {trace_id: row for row, trace_id in self._rows() if trace_id in self._additions.traces}
        for trace_id, addition in self._additions.traces.items():
            if trace_id not in rows:
                yield Missing(trace_id, addition.steps.total(), [])
                rows[trace_id] = len(self.aggregate)
                unknown = Ongoing()
                unknown.run = addition.run
                self._close(trace_id, unknown)
            elif lacking := addition.lacking():
                yield Missing(trace_id, addition.steps.total(), lacking)
            self._enlarge(rows[trace_id], addition, Counter())
        for row, scoring in self._undecided.items():
            self.aggregate.run_of(row).grade(scoring.gradings)
        self._add_late()

    def _add_late(self) -> None:
        """Add what was stated apart from the episodes."""
        for trace_id, (run, scoring) in self._late.items():
            grades = {grade.span: grade for grade in self._late_grades.get(trace_id, ())}
            self.aggregate.of(run).grade(outline.with_grades(scoring, [*grades.values()]).gradings)
        if self._outcomes:
            for row, trace_id in self._rows():
                stated = self._outcomes.get(trace_id)
                if stated is not None and stated.outcome in ("success", "failure", "unknown"):
                    self.aggregate.labels["outcomes"].replace(row, str(stated.outcome))

    def _rows(self) -> Iterator[tuple[int, str]]:
        for row in range(len(self.aggregate)):
            high, low = self._traces[2 * row : 2 * row + 2]
            yield row, f"{high:016x}{low:016x}"

    def _close(self, trace_id: str, episode: Ongoing) -> None:
        ending = episode.ending or outline.Ending(
            run=episode.run,
            status="unfinished",
            outcome="unknown",
            env=episode.env,
            task=episode.task,
            spec="",
            return_=None,
            return_basis="",
            length=max(episode.steps.values(), default=0),
            span_count=0,
        )
        place, scoring = episode.place, episode.scoring()
        self._traces.extend((int(trace_id[:16], 16), int(trace_id[16:], 16)))
        self.aggregate.add(
            Row(
                run=ending.run,
                trace_id=trace_id,
                start_time=place.start,
                duration=(place.end - place.start) / 1e9 if episode.ending else math.nan,
                return_=math.nan if ending.return_ is None else ending.return_,
                length=ending.length,
                status=ending.status,
                outcome=ending.outcome,
                env=ending.env,
                spec=ending.spec,
                task=ending.task,
            )
        )
        self._flags.append(
            (0 if episode.ending else _UNFINISHED)
            | (_PAID_BY_STEPS if ending.return_basis == "steps" else 0)
            | (_PAID if ending.return_basis == "episode" else 0)
            | (_SCORED if scoring is not None and scoring.states_total else 0)
        )
        run = self.aggregate.of(ending.run)
        run.pay(ending.cost_usd)
        run.grade(episode.gradings())
        if scoring is not None and scoring.states_total:
            run.grade(scoring.gradings)
        elif scoring is not None:
            self._undecided[len(self.aggregate) - 1] = scoring

    def _enlarge(self, row: int, addition: Addition, steps: Counter[str | None]) -> None:
        """Add to an episode what other processes did and paid; `steps` are its own where it is unfinished."""
        flags, figures = self._flags[row], self.aggregate
        run = figures.run_of(row)
        run.grade(addition.gradings())
        if flags & _UNFINISHED:
            figures.lengths[row] = max((steps + addition.steps).values(), default=0)
            if addition.start and not figures.start_times[row]:
                figures.start_times[row] = addition.start
        else:
            figures.lengths[row] = max(figures.lengths[row], addition.length)
            if addition.paid and not flags & _PAID:
                before = figures.returns[row] if flags & _PAID_BY_STEPS else 0.0
                figures.returns[row] = before + addition.sum
        scoring = addition.scoring()
        if scoring is None or flags & _SCORED:
            return
        own = self._undecided.pop(row, None)
        if own is not None and not scoring.states_total and own.when > scoring.when:
            scoring = own
        run.grade(scoring.gradings)
        if scoring.states_total and not flags & (_PAID | _UNFINISHED):
            figures.returns[row] = math.nan if scoring.value is None else scoring.value
            figures.labels["specs"].replace(row, scoring.spec)
