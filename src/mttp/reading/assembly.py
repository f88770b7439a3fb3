"""Assembles episode summaries from spans, in one pass and in any order of spans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from mttp.codec import segments, shares, summary_fields, templates
from mttp.model.counting import is_return_counted
from mttp.model.gradings import Grading, Scored, gradings, label
from mttp.model.spans import Scope, SpanRecord
from mttp.reading.episode_figures import (
    NO_REWARD,
    FigureCounts,
    ScoreFigures,
    SummaryFigures,
    known,
    labels,
    reward_figures,
    summed_scores,
)
from mttp.reading.episode_summary import Counts, EpisodeRow, EpisodeSummary, UndecidedScoring
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Assembler", "EpisodePlace", "PartialEpisode"]


_NOWHERE = Scope()


class EpisodePlace(NamedTuple):
    """Facts of the whole episode, from its root, its start marker or another of its spans."""

    start_time: int
    root: str
    """Id of the root span."""
    attributes: Mapping[str, Any]
    """Those of the span."""

    def text(self, key: str, default: str = "") -> str:
        """An attribute as text."""
        return str(self.attributes.get(key, default))


class PartialEpisode:
    """The spans read so far of the part that one process recorded, or of all other parts."""

    __slots__ = (
        "_invalid_rewards",
        "counts",
        "duplicates",
        "figured",
        "first",
        "grades",
        "marker",
        "parts",
        "root",
        "scorings",
        "steps",
    )

    def __init__(self, counts: Counts | None = None, *, figures: bool = False) -> None:
        self.parts = segments.EpisodeParts()
        self.steps = segments.Totals()
        self.counts = counts or Counts()
        self.duplicates = 0
        """Number of repeated spans."""
        self.root: SpanRecord | None = None
        self.marker: EpisodePlace | None = None
        self.first: EpisodePlace | None = None
        """The facts of the span with the earliest start."""
        self.scorings: dict[tuple[str, str, bool], tuple[str, Scored]] = {}
        """Part and last scoring by scope, target and, for the episode, whether it has a total."""
        self.grades: list[SpanRecord] = []
        self._invalid_rewards: dict[str, int] = {}
        """Number of steps with an invalid reward by span id."""
        self.figured = FigureCounts() if figures else None
        """What the figures of the episode need besides; None if they are not wanted."""

    def add(self, kind: str, record: SpanRecord) -> None:
        """Add a span of that kind."""
        if not self.parts.add(kind, record):
            self.duplicates += 1
            return
        self.counts.add(kind, record.attributes)
        if self.figured is not None:
            self.figured.add(kind, record)
        if kind == names.EPISODE:
            self.root = self.root or record
            return
        if self.first is None or record.start_time < self.first.start_time:
            self.first = EpisodePlace(record.start_time, record.parent_id, record.attributes)
        if kind in (names.STEP, names.STEPS):
            self.steps.add(summary_fields.played(record))
            self._note_reward(record.span_id, record.attributes)
            self._add_step_scorings(record)
        elif kind == names.REWARD:
            self._score(*summary_fields.scored(record), record, summary_fields.reward(record))
        elif kind == names.GRADE:
            self.grades.append(record)
        elif kind == names.EPISODE_START and self.marker is None:
            self.marker = EpisodePlace(record.start_time, record.parent_id, record.attributes)

    def add_step(self, span_id: str, attributes: Mapping[str, Any]) -> None:
        """Add a step of an episode whose root follows."""
        if self.parts.take(segments.OWNER, span_id):
            self.counts.add(names.STEP, attributes)
            self._note_reward(span_id, attributes)
            if self.figured is not None:
                self.figured.add_step(span_id, attributes)
        else:
            self.duplicates += 1

    def _note_reward(self, span_id: str, attributes: Mapping[str, Any]) -> None:
        if invalid := summary_fields.invalid_rewards(attributes):
            self._invalid_rewards[span_id] = invalid

    @property
    def invalid_step_rewards(self) -> int:
        """Number of steps with an invalid reward and no scoring."""
        return sum(
            count
            for span, count in self._invalid_rewards.items()
            if ("step", span, False) not in self.scorings
        )

    def _add_step_scorings(self, step: SpanRecord) -> None:
        for key, index, scored in summary_fields.step_scorings(step):
            self._score("step", key, step, scored)
            if self.figured is not None:
                self.figured.steps[key] = index

    def _score(self, scope: str, target: str, record: SpanRecord, scored: Scored) -> None:
        key = scope, target, scope == "episode" and segments.states_total(scored)
        before = self.scorings.get(key)
        if before is None or when(scored) >= when(before[1]):
            self.scorings.pop(key, None)  # moves the key to the end: of equal times the last one counts
            self.scorings[key] = segments.segment(record), scored

    @property
    def is_whole(self) -> bool:
        """Whether the episode has ended, and all spans of the process that started it were read."""
        return self.parts.is_whole(segments.OWNER)

    def scored(self, trace_id: str) -> tuple[tuple[str, Scored] | None, tuple[Grading, ...]]:
        """The episode's effective scoring with its part, and the gradings of steps and agents."""
        if not self.scorings:
            return None, ()
        children = summary_fields.children(self.grades)
        root = None if self.root is None else self.root.span_id
        of_whole: list[tuple[str, Scored]] = []
        others: list[Grading] = []
        for (scope, target, _), (part, found) in self.scorings.items():
            scored = summary_fields.with_grades(found, children) if children else found
            if scope != "episode":
                others += gradings(scored, scope=scope, episode=trace_id)
            elif root in (None, target):
                of_whole.append((part, scored))
        return segments.effective_scoring(sorted(of_whole, key=lambda one: when(one[1]))), tuple(others)

    def ended(self, trace_id: str, scope: Scope = _NOWHERE) -> EpisodeSummary:
        """The summary of the spans read so far."""
        effective, graded = self.scored(trace_id)
        scored = effective and effective[1]
        stated = () if scored is None else tuple(gradings(scored, episode=trace_id))
        is_scored = scored is not None and segments.states_total(scored)
        found = {} if self.root is None else self.root.attributes
        row = self._row(trace_id, found, scored)
        return EpisodeSummary(
            row=row,
            counts=self.counts,
            gradings=(*stated, *graded) if is_scored else graded,
            undecided=None if scored is None or is_scored else UndecidedScoring(when(scored), stated),
            cost_usd=summary_fields.number(found, a.USAGE_COST_USD),
            is_scored=is_scored,
            basis=found.get(a.EPISODE_RETURN_BASIS),
            root=self.place.root,
            spans=self.parts.found,
            duplicates=self.duplicates,
            invalid_step_rewards=self.invalid_step_rewards,
            is_rewarded=self.is_rewarded,
            has_unplaced_calls=self.figured is not None and self.figured.has_unplaced_calls,
            figures=None if self.figured is None else self._figures(row, scored, self.figured),
            scope=scope,
        )

    def _figures(self, row: EpisodeRow, scored: Scored | None, counted: FigureCounts) -> SummaryFigures:
        found = self.place.attributes
        prompt_tokens, completion_tokens = counted.tokens or (None, None)
        calls = counted.calls()
        return SummaryFigures(
            trace_id=row.trace_id,
            run=row.run,
            start_time=row.start_time,
            env=row.env,
            task=found.get(a.TASK_ID),
            seed=None if (seed := found.get(a.ENV_SEED)) is None else str(seed),
            split=found.get(a.TASK_SPLIT),
            slices=tuple(found.get(a.TASK_SLICES) or ()),
            group=found.get(a.GROUP_ID),
            policy_version=found.get(a.POLICY_VERSION_START),
            status=row.status,
            outcome=row.outcome,
            stop_reason=found.get(a.EPISODE_STOP_REASON),
            truncated=found.get(a.EPISODE_TRUNCATED),
            return_=known(found.get(a.EPISODE_RETURN)),
            **(NO_REWARD if scored is None else reward_figures(scored)),
            step_scores=self.step_scores(),
            metrics=counted.metrics(templates.decode(a.METRIC, found)),
            metadata=counted.metadata(labels(templates.decode(a.METADATA, found))),
            length=row.length,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            call_count=calls[0],
            call_nanoseconds=calls[1],
            duration=known(row.duration),
            cost=known(found.get(a.USAGE_COST_USD)),
            inputs_json=found.get(a.INPUTS_JSON),
            env_version=found.get(a.ENV_VERSION),
            env_kwargs=found.get(a.ENV_KWARGS),
            env_spaces=found.get(a.ENV_SPACES),
            env_wrappers=tuple(found.get(a.ENV_WRAPPERS) or ()),
            time_to_first_token=counted.time_to_first_token(),
            share=known(row.share),
        )

    def step_scores(self) -> ScoreFigures:
        """The scores of the last scoring of each step, in order of steps."""
        steps = {} if self.figured is None else self.figured.steps
        scorings = [
            (steps[target], scored)
            for (scope, target, _), (_, scored) in self.scorings.items()
            if scope == "step" and target in steps
        ]
        if not scorings:
            return ScoreFigures()
        children = summary_fields.children(self.grades)
        ordered = sorted(scorings, key=itemgetter(0))
        return summed_scores([summary_fields.with_grades(scored, children) for _, scored in ordered])

    @property
    def is_rewarded(self) -> bool:
        """Whether a reward of the episode or of a step is recorded."""
        root = self.root
        if any(
            scope == "episode" and (root is None or target == root.span_id)
            for scope, target, _ in self.scorings
        ):
            return True
        if root is None:
            return self.steps.has_rewards
        return a.EPISODE_RETURN_BASIS in root.attributes or a.EPISODE_STEP_REWARD_SUM in root.attributes

    @property
    def place(self) -> EpisodePlace:
        """The facts of the root; without a root, of the start marker or of the span that started first."""
        if self.root is not None:
            return EpisodePlace(self.root.start_time, self.root.span_id, self.root.attributes)
        found = self.marker or self.first
        assert found is not None, "the episode has no spans"
        return found

    def _row(self, trace_id: str, found: Mapping[str, Any], scored: Scored | None) -> EpisodeRow:
        root, place = self.root, self.place
        return_ = summary_fields.number(found, a.EPISODE_RETURN)
        share = None if root is None else shares.of_state(root.trace_state)
        return EpisodeRow(
            run=place.text(a.RUN_ID),
            trace_id=trace_id,
            start_time=place.start_time,
            duration=math.nan if root is None else (root.end_time - root.start_time) / 1e9,
            return_=math.nan if return_ is None else return_,
            length=self.steps.longest if root is None else summary_fields.count(found, a.EPISODE_LENGTH),
            status="unfinished" if root is None else str(found.get(a.EPISODE_STATUS, "completed")),
            outcome=place.text(a.EPISODE_OUTCOME, "unknown"),
            env=place.text(a.ENV_ID),
            spec="" if root is None else spec(scored) if scored else summary_fields.spec(found),
            task=place.text(a.TASK_ID),
            split=place.text(a.TASK_SPLIT),
            stop_reason=place.text(a.EPISODE_STOP_REASON),
            is_return_counted=scored is None or is_return_counted(return_, scored.value, scored.status),
            advantage=math.nan if (number := summary_fields.number(found, a.ADVANTAGE)) is None else number,
            share=math.nan if share is None else share,
        )


def spec(scored: Scored) -> str:
    """Name and version of the scoring's reward spec; empty if it has none."""
    return label(scored) if scored.spec is not None else ""


def when(scored: Scored) -> tuple[int, int]:
    """Start and end time of a scoring."""
    return scored.start_time, scored.end_time


class Assembler:
    """Assembles episodes from the spans of the process that started them."""

    def __init__(self, *, figures: bool = False) -> None:
        self._figures = figures
        self.open: dict[str, PartialEpisode] = {}
        """Incomplete episodes by trace id."""

    def has_open(self, trace_id: str) -> bool:
        """Whether some, but not all, spans of the episode were read."""
        return trace_id in self.open

    def add(self, kind: str, record: SpanRecord) -> EpisodeSummary | None:
        """Add a span of that kind; return the episode if the span completes it."""
        episode = self.open.get(record.trace_id)
        if episode is None:
            episode = self.open[record.trace_id] = PartialEpisode(figures=self._figures)
        episode.add(kind, record)
        if not episode.is_whole:
            return None
        del self.open[record.trace_id]
        return episode.ended(record.trace_id, record.scope)
