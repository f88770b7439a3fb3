"""Aggregates all spans of a source in one pass, without building episodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mttp.codec import summary_fields
from mttp.model.spans import SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.episode_figures import SummaryFigures, is_model_call
from mttp.reading.episode_summary import Counts
from mttp.reading.garbage import gc_disabled
from mttp.reading.problems import Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.reading.span_aggregation import MissingEpisode, SpanAggregator
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.model.episodes import Run

__all__ = ["AggregatedSource", "add_other_calls", "aggregate_source", "read_figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedSource:
    """The aggregated spans of a source, with its runs and problems."""

    spans: SpanAggregator
    runs: list[Run]
    problems: list[Problem]
    sources: list[Path]
    """Paths of the files that were read, in order."""
    stores: list[str]
    """Trace stores and datasets that were read, in order."""


def aggregate_source(
    source: Source, *, figures: bool = False, strict: bool = False, progress: Progress | None = None
) -> AggregatedSource:
    """Read `source` once; `figures` are those of `SpanAggregator`, the rest as for `mttp.read`."""
    spans = SpanAggregator(figures=figures)
    scan = Scan(
        source, arrays=False, strict=strict, progress=progress, is_open=spans.has_open, figures=figures
    )
    for record in scan:
        spans.add(record)
    for missing in spans.finish():
        _note(missing, scan)
    runs = _runs(spans, scan)
    scan.add_missing_episodes(runs, spans.by_run)
    return AggregatedSource(
        spans=spans, runs=runs, problems=scan.problems, sources=scan.sources, stores=scan.stores
    )


def read_figures(
    source: Source, *, progress: Progress | None = None
) -> tuple[AggregatedSource, list[SummaryFigures]]:
    """
    The aggregated source, and the figures of its episodes, in the order in which they ended.

    Model calls below spans of other libraries need a second pass, since their steps are then not known.
    """
    with gc_disabled():
        found = aggregate_source(source, figures=True, progress=progress)
    unplaced = found.spans.unplaced
    if not unplaced:
        return found, [*found.spans.figures]
    calls = _calls(source, unplaced)
    return found, [
        one._replace(call_count=calls[one.trace_id][0], call_nanoseconds=calls[one.trace_id][1])
        if one.trace_id in calls
        else one
        for one in found.spans.figures
    ]


def add_other_calls(found: AggregatedSource, source: Source) -> None:
    """Add the tokens of calls below spans of other libraries, which need a second pass, if there are any."""
    if not found.spans.unplaced:
        return
    from mttp.codec import calls

    for records in _traces(source, found.spans.unplaced).values():
        children = summary_fields.children(records.values())
        for step in (one for one in records.values() if summary_fields.kind(one) == names.STEP):
            others = (
                call.attributes
                for call in calls.below(step.span_id, children)
                if a.RUN_ID not in call.attributes
            )
            for attributes in others:
                run = found.spans.aggregate.of(str(step.attributes.get(a.RUN_ID, "")))
                run.counts.merge(Counts(call_tokens=summary_fields.counts(attributes)))


def _traces(source: Source, trace_ids: set[str]) -> dict[str, dict[str, SpanRecord]]:
    """Return the spans of these traces by trace id and span id."""
    traces: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
    for record in Scan(source, arrays=False, traces=trace_ids):
        if record.trace_id in trace_ids:
            traces[record.trace_id].setdefault(record.span_id, record)
    return traces


def _calls(source: Source, trace_ids: set[str]) -> dict[str, tuple[int, int]]:
    """Number and total duration in nanoseconds of the model calls of the steps of these traces."""
    from mttp.codec import calls

    found = {}
    for trace_id, records in _traces(source, trace_ids).items():
        children = summary_fields.children(records.values())
        steps = [one.span_id for one in records.values() if summary_fields.kind(one) == names.STEP]
        durations = [
            call.end_time - call.start_time
            for step in steps
            for call in calls.below(step, children)
            if is_model_call(call.attributes)
        ]
        found[trace_id] = len(durations), sum(durations)
    return found


def _note(missing: MissingEpisode, scan: Scan) -> None:
    if not missing.lacking:
        message = f"episode {missing.trace_id} has no end: {missing.steps} steps were found"
        scan.add_problem("unfinished_episode", message, trace_id=missing.trace_id)
    else:
        message = f"episode {missing.trace_id} lacks spans: {', '.join(missing.lacking)}"
        scan.add_problem("incomplete_episode", message, trace_id=missing.trace_id)


def _runs(spans: SpanAggregator, scan: Scan) -> list[Run]:
    if not spans.runs:
        return []
    from mttp.codec import runs as run_codec  # imports all values, which nothing else here needs

    runs = []
    for trace_id, records in spans.runs.items():
        try:
            runs.append(run_codec.decode(list(records.values())))
        except Exception as error:
            scan.add_problem("broken_trace", undecodable(trace_id, error), trace_id=trace_id)
    return sorted(runs, key=lambda run: (run.start_time or 0, run.id))
