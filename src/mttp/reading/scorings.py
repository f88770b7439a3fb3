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
    """The scorings in the spans of a recording, by episode."""

    def __init__(self) -> None:
        self._scorings: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
        self._grades: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)

    def add(self, record: SpanRecord) -> None:
        """Take note of a span."""
        kind = summary_fields.kind(record)
        if kind in (names.REWARD, names.GRADE):
            found = self._scorings if kind == names.REWARD else self._grades
            found[record.trace_id].setdefault(record.span_id, record)

    def health(self, evaluation: Evaluation) -> tuple[GraderHealth, ...]:
        """
        The health of each grader of the evaluation's episodes, those of the results that count.

        Of an episode, an agent or a step that was scored several times the last scoring counts.
        """
        tally = GraderTally()
        for trace_id in {result.episode for result in evaluation.latest().values()} & self._scorings.keys():
            grades = summary_fields.children(self._grades[trace_id].values())
            for mine in summary_fields.children(self._scorings[trace_id].values()).values():
                scope, _ = summary_fields.scored(mine[-1])
                reward = summary_fields.with_grades(summary_fields.reward(mine[-1]), grades)
                for grading in gradings(reward, scope=scope):
                    tally.add(grading)
        return tally.health()
