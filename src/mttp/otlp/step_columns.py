"""Steps as spans or as columns, as a transport takes them: several spans of one trace to what is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from opentelemetry.trace import StatusCode

from mttp.codec import blocks
from mttp.codec.pending import TOKENS
from mttp.otlp.spans import AUTO, SPANS, EndedSpan, RecordingSpan
from mttp.otlp.step_batch import StepBatch
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["SPAN_STEPS", "packed", "spread"]

SPAN_STEPS = 1000
"""Of an episode's steps, or of an agent's, the first so many are spans; the others can be columns."""
MAX_BYTES = 512 * 1024
"""Roughly what one span may hold."""

_OF_THE_BATCH = frozenset({a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID, a.STEP_INDEX})
_Key: TypeAlias = tuple[int, object]


def spread(spans: list[EndedSpan]) -> list[EndedSpan]:
    """Spans of one trace, each of an environment's first steps as a span of its own."""
    if StepBatch not in set(map(type, spans)):
        return spans
    found: list[EndedSpan] = []
    for span in spans:
        if isinstance(span, StepBatch) and span.is_spread and span.first_index < SPAN_STEPS:
            found += span.spans()
        else:
            found.append(span)
    return found


def packed(spans: list[EndedSpan], *, takes_columns: bool) -> list[EndedSpan]:
    """
    Spans of one trace, with consecutive steps in columns where the transport and the steps allow it.

    A transport that takes columns has those of environments so from the first step on.
    """
    first = {True: 0 if takes_columns else SPAN_STEPS, False: SPAN_STEPS}
    if not any(_can_be_packed(span, first) for span in spans):
        return spans
    others: list[EndedSpan] = []
    runs: dict[_Key, list[RecordingSpan]] = {}
    for span in spans:
        if _can_be_packed(span, first):
            above = 0 if span._parent is None else span._parent.span_id
            runs.setdefault((above, span.encoded.get(a.AGENT_ID)), []).append(span)
        else:
            others.append(span)
    columns = [_in_columns(run) for steps in runs.values() for run in _runs(sorted(steps, key=_index))]
    return [*columns, *others]  # readers are quicker where the root is the last


def _index(span: RecordingSpan) -> int:
    index: int = span.encoded[a.STEP_INDEX]
    return index


def _can_be_packed(span: EndedSpan, first: Mapping[bool, int]) -> TypeGuard[RecordingSpan]:
    """
    Whether columns hold all that a step's span says, and its episode's steps are to be in columns by now.

    `first` is the first step that is, by whether the steps are an environment's.
    It has a span of its own where anybody may refer to that: it has children, or its id is known;
    and where it says what columns don't hold: tokens, events, links or an error.
    """
    if type(span) is not RecordingSpan or span._name != names.STEP or span._context is not None:
        return False
    trace = span._trace
    if trace.steps == SPANS:
        return False
    if trace.steps == AUTO and _index(span) < first[trace.of_environment]:
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
    """Steps that follow each other without a gap, as many as one span may hold."""
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
    said = [{key: value for key, value in step.values.items() if key not in _OF_THE_BATCH} for step in run]
    starts = [step.started for step in run]
    ends = [step.end_time or step.started for step in run]
    identity = {key: first.encoded[key] for key in _OF_THE_BATCH - {a.STEP_INDEX} if key in first.encoded}
    columns = blocks.columns(said)
    return RecordingSpan.over(
        names.STEPS,
        identity | blocks.encode(columns, first_index=_index(first), start_times=starts, end_times=ends),
        first._trace,
        first._parent,
        start_time=min(starts),
        end_time=max(ends),
    )
