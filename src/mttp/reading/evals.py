"""The evaluations of a recording, read without building its episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mttp.codec import evals as codec
from mttp.codec import kinds
from mttp.codec.duplicates import fuller
from mttp.model.evaluations import Evaluation
from mttp.model.spans import SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.call_times import StreamedCalls, timed
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source

__all__ = ["Evaluations", "EvaluationPart", "evaluations", "merged", "part"]


@dataclass(frozen=True, slots=True)
class EvaluationPart:
    """The part of an evaluation in one trace."""

    evaluation: Evaluation
    lacking: int
    """Number of results that are missing."""


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The evaluations of a recording, and its problems."""

    evals: list[Evaluation]
    """In order of start."""
    problems: list[Problem]
    """Problems of the recording, without those that only `mttp.read` detects."""
    sources: list[Path]
    """Paths of the files that were read, in order."""


def evaluations(source: Source, *, progress: Progress | None = None) -> Evaluations:
    """The evaluations of `source`; the arguments and errors are those of `mttp.read`."""
    scan = Scan(source, arrays=True, progress=progress)
    traces: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
    calls = StreamedCalls()
    for record in scan:
        if kinds.is_evaluation(record):
            trace = traces[record.trace_id]
            trace[record.span_id] = fuller(trace.get(record.span_id, record), record)
        else:
            calls.add(record)
    evals = merged([part(list(spans.values())) for spans in traces.values()], scan)
    return Evaluations(timed(evals, calls.of), scan.problems, scan.sources)


def part(records: Sequence[SpanRecord]) -> EvaluationPart:
    """The part of an evaluation in the distinct spans of one trace."""
    return EvaluationPart(codec.decode(records), codec.lacking(records))


def merged(parts: Iterable[EvaluationPart], scan: Scan) -> list[Evaluation]:
    """The evaluations in order of start; missing results and ends are added to the problems."""
    parts = list(parts)
    for piece in parts:
        if piece.lacking:
            _note_lacking(piece, scan)
    evals = codec.merged(piece.evaluation for piece in parts)
    for evaluation in evals:
        if evaluation.status == "unfinished":
            _note_unfinished(evaluation, scan)
    return evals


def _note_lacking(part: EvaluationPart, scan: Scan) -> None:
    evaluation = part.evaluation
    count = len(evaluation.results)
    message = f"{_called(evaluation)} lacks results: {count} of {count + part.lacking} were found"
    scan.add_problem("incomplete_evaluation", message, trace_id=evaluation.trace_ids[-1])


def _note_unfinished(evaluation: Evaluation, scan: Scan) -> None:
    summary = evaluation.summary()
    progress = f"{summary.tasks - summary.pending} of {summary.tasks} tasks have a result"
    message = f"{_called(evaluation)} has no end: {progress}"
    scan.add_problem("unfinished_evaluation", message, trace_id=evaluation.trace_ids[-1])


def _called(evaluation: Evaluation) -> str:
    return f"evaluation {evaluation.id} of {evaluation.suite}"
