"""The health of the graders that scored the episodes of an evaluation, without building the episodes."""

from __future__ import annotations

from collections import defaultdict

from mttp.codec import summary_fields
from mttp.model.evaluations import Evaluation
from mttp.model.gradings import GraderHealth, GraderTally, Scored, gradings
from mttp.model.spans import SpanRecord
from mttp.reading.assembly import when
from mttp.semconv import spans as names

__all__ = ["EpisodeScorings"]


class EpisodeScorings:
    """Collects the scorings of a recording, by episode."""

    def __init__(self) -> None:
        self._scorings: defaultdict[str, dict[tuple[str, str], Scored]] = defaultdict(dict)
        """The last scoring of each episode, agent and step, by trace id."""
        self._grades: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)

    def add(self, record: SpanRecord) -> None:
        """Add a span."""
        kind = summary_fields.kind(record)
        if kind == names.GRADE:
            self._grades[record.trace_id].setdefault(record.span_id, record)
        elif kind == names.REWARD:
            self._add(record.trace_id, *summary_fields.scored(record), summary_fields.reward(record))
        elif kind in (names.STEP, names.STEPS):
            for key, _, scored in summary_fields.step_scorings(record):
                self._add(record.trace_id, "step", key, scored)

    def _add(self, trace_id: str, scope: str, target: str, scored: Scored) -> None:
        latest = self._scorings[trace_id]
        before = latest.get((scope, target))
        if before is None or when(scored) >= when(before):
            latest[scope, target] = scored

    def health(self, evaluation: Evaluation) -> tuple[GraderHealth, ...]:
        """
        The health of each grader over the episodes of the evaluation's latest results.

        Only the last scoring of an episode, an agent or a step counts.
        """
        tally = GraderTally()
        for trace_id in {result.episode for result in evaluation.latest().values()} & self._scorings.keys():
            grades = summary_fields.children(self._grades[trace_id].values())
            for (scope, _), scored in self._scorings[trace_id].items():
                reward = summary_fields.with_grades(scored, grades)
                for grading in gradings(reward, scope=scope, episode=trace_id):
                    tally.add(grading)
        return tally.health()
