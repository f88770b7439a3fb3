"""The health of the graders that scored the episodes of an evaluation, without building the episodes."""

from __future__ import annotations

from collections import defaultdict

from mttp.codec import outline
from mttp.evaluations import Evaluation
from mttp.gradings import GraderHealth, GraderTally
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

__all__ = ["EpisodeScorings"]


class EpisodeScorings:
    """The scorings in the spans of a recording, by episode."""

    def __init__(self) -> None:
        self._scorings: defaultdict[str, dict[str, outline.Scored]] = defaultdict(dict)
        self._grades: defaultdict[str, dict[str, outline.Graded]] = defaultdict(dict)

    def add(self, record: SpanRecord) -> None:
        """Take note of a span."""
        kind = outline.kind(record)
        if kind == names.REWARD:
            self._scorings[record.trace_id].setdefault(record.span_id, outline.scored(record))
        elif kind == names.GRADE:
            self._grades[record.trace_id].setdefault(record.span_id, outline.graded(record))

    def health(self, evaluation: Evaluation) -> tuple[GraderHealth, ...]:
        """
        The health of each grader of the evaluation's episodes, those of the results that count.

        Of an episode, an agent or a step that was scored several times the last scoring counts.
        """
        tally = GraderTally()
        for trace_id in {result.episode for result in evaluation.latest().values()} & self._scorings.keys():
            grades = list(self._grades[trace_id].values())
            last: dict[str, outline.Scored] = {}
            for scoring in sorted(self._scorings[trace_id].values(), key=lambda found: found.when):
                last[scoring.parent] = scoring
            for scoring in last.values():
                for grading in outline.with_grades(scoring, grades).gradings:
                    tally.add(grading)
        return tally.health()
