"""Arranges the steps of a trace as spans or in columns, as the transport takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeGuard

from opentelemetry.trace import StatusCode

from mttp.codec import blocks
from mttp.codec.pending import TOKENS
from mttp.otlp.spans import AUTO, SPANS, Arrival, EndedSpan, RecordingSpan
from mttp.otlp.step_batch import StepBatch
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["SPAN_STEPS", "may_be_packed", "packed", "spread"]

SPAN_STEPS = 1000
"""Number of first steps of an episode, or of an agent, that are spans; later ones may be in columns."""
MAX_BYTES = 512 * 1024
"""Approximate maximum size of a span."""

_OF_THE_BATCH = frozenset({a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID, a.STEP_INDEX})
_Key: TypeAlias = tuple[int, object, object]


def spread(spans: list[EndedSpan]) -> list[EndedSpan]:
    """Return the spans of a trace with each of an environment's first steps as its own span."""
    if StepBatch not in set(map(type, spans)):
        return spans
    found: list[EndedSpan] = []
    for span in spans:
        if isinstance(span, StepBatch) and span.is_spread and span.first_index < SPAN_STEPS:
            found += span.spans()
        else:
            found.append(span)
    return found


def packed(spans: Sequence[Arrival], *, takes_columns: bool) -> Sequence[Arrival]:
    """
    Return the spans of a trace with consecutive steps in columns where the transport and the steps allow it.

    A transport that takes columns gets steps of environments in columns from the first step on.
    """
    if not any(_can_be_packed(span, takes_columns=takes_columns) for span in spans):
        return spans
    others: list[Arrival] = []
    runs: dict[_Key, list[RecordingSpan]] = {}
    for span in spans:
        if _can_be_packed(span, takes_columns=takes_columns):
            above = 0 if span._parent is None else span._parent.span_id
            key = (above, span.encoded.get(a.AGENT_ID), span.encoded.get(a.SEGMENT_ID))
            runs.setdefault(key, []).append(span)
        else:
            others.append(span)
    columns = [_in_columns(run) for steps in runs.values() for run in _runs(sorted(steps, key=_index))]
    return [*columns, *others]  # reading is faster if the root comes last


def _index(span: RecordingSpan) -> int:
    index: int = span.encoded[a.STEP_INDEX]
    return index


def may_be_packed(span: Arrival) -> bool:
    """Whether a transport that takes columns may get a step in columns."""
    return _can_be_packed(span, takes_columns=True)


def _can_be_packed(span: Arrival, *, takes_columns: bool) -> TypeGuard[RecordingSpan]:
    """
    Whether a step may be in columns: its index is high enough, and columns can hold its span.

    A transport that takes columns gets an environment's steps in columns from the first on.
    A step stays a span if others may refer to it, because it has children or its id is known, and if it has
    tokens, events, links or an error.
    """
    if type(span) is not RecordingSpan or span._name != names.STEP or span._context is not None:
        return False
    trace = span._trace
    if trace.steps == SPANS:
        return False
    if trace.steps == AUTO and not (takes_columns and trace.of_environment) and _index(span) < SPAN_STEPS:
        return False
    return not (
        a.TOKEN_ENCODING in span.encoded
        or (span.pending is not None and TOKENS in span.pending)
        or span._events
        or span._links
        or span._status.status_code is not StatusCode.UNSET
        or span._trace.origin.observers is not None
    )


def _runs(steps: Sequence[RecordingSpan]) -> Iterator[list[RecordingSpan]]:
    """Yield runs of consecutive steps, each as long as one span may hold."""
    run: list[RecordingSpan] = []
    size = 0
    for step in steps:
        if run and (_index(step) != _index(run[-1]) + 1 or len(run) >= blocks.MAX_STEPS or size >= MAX_BYTES):
            yield run
            run, size = [], 0
        run.append(step)
        size += step.size
    if run:
        yield run


def _in_columns(run: Sequence[RecordingSpan]) -> RecordingSpan:
    first = run[0]
    rows = [{key: value for key, value in step.values.items() if key not in _OF_THE_BATCH} for step in run]
    starts = [step.started for step in run]
    ends = [step.end_time or step.started for step in run]
    identity = {key: first.encoded[key] for key in _OF_THE_BATCH - {a.STEP_INDEX} if key in first.encoded}
    columns = blocks.columns(rows)
    return RecordingSpan.over(
        names.STEPS,
        identity | blocks.encode(columns, first_index=_index(first), start_times=starts, end_times=ends),
        first._trace,
        first._parent,
        start_time=min(starts),
        end_time=max(ends),
    )
