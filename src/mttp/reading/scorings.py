"""The health of the graders that scored the episodes of an evaluation, without building the episodes."""

from __future__ import annotations

from collections import defaultdict

from mttp.codec import summary_fields
from mttp.model.evaluations import Evaluation
from mttp.model.gradings import GraderHealth, GraderTally, gradings
from mttp.model.spans import SpanRecord
from mttp.semconv import spans as names

__all__ = ["EpisodeScorings"]


class EpisodeScorings:
    """Collects the scorings of a recording, by episode."""

    def __init__(self) -> None:
        self._scorings: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
        self._grades: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)

    def add(self, record: SpanRecord) -> None:
        """Add a span."""
        kind = summary_fields.kind(record)
        if kind in (names.REWARD, names.GRADE):
            found = self._scorings if kind == names.REWARD else self._grades
            found[record.trace_id].setdefault(record.span_id, record)

    def health(self, evaluation: Evaluation) -> tuple[GraderHealth, ...]:
        """
        The health of each grader over the episodes of the evaluation's latest results.

        Only the last scoring of an episode, an agent or a step counts.
        """
        tally = GraderTally()
        for trace_id in {result.episode for result in evaluation.latest().values()} & self._scorings.keys():
            grades = summary_fields.children(self._grades[trace_id].values())
            for scorings in summary_fields.children(self._scorings[trace_id].values()).values():
                scope, _ = summary_fields.scored(scorings[-1])
                reward = summary_fields.with_grades(summary_fields.reward(scorings[-1]), grades)
                for grading in gradings(reward, scope=scope, episode=trace_id):
                    tally.add(grading)
        return tally.health()
