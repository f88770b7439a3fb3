"""Arranges the steps of a trace as spans or in columns, as the transport takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from mttp.codec import blocks
from mttp.model import ids
from mttp.model.spans import SpanRecord
from mttp.otlp import frames
from mttp.otlp.frames import IF_TAKEN, NEVER, WHEREVER, Frame
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["SPAN_STEPS", "packed", "spread"]

SPAN_STEPS = 1000
"""Number of first steps of an episode, or of an agent, that are spans; later ones may be in columns."""
MAX_BYTES = 512 * 1024
"""Approximate maximum size of a span."""

_IDENTITY = (a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID)
_OF_THE_BATCH = frozenset({*_IDENTITY, a.STEP_INDEX})
_SPREAD = 0x9E3779B97F4A7C15
"""An odd increment that spreads the ids of a batch's steps over 64 bits."""
_Key: TypeAlias = tuple[str, object, object]
_Step: TypeAlias = tuple[Frame, SpanRecord]


def spread(spans: Sequence[Frame]) -> Sequence[Frame]:
    """Return the spans of a trace with each of an environment's first steps as its own span."""
    if not any(span.has_rows for span in spans):
        return spans
    return [each for span in spans for each in (_steps(span) if span.has_rows else (span,))]


def _steps(batch: Frame) -> Iterator[Frame]:
    """Yield one span per step, with equal ids in each call; the batch itself unless it has an early step."""
    record = frames.record(batch)
    values = record.attributes
    first = values.get(a.STEPS_FIRST_INDEX, 0)
    if batch.columns != IF_TAKEN or first >= SPAN_STEPS:
        yield batch
        return
    identity = {key: values[key] for key in _IDENTITY if key in values}
    times, span_id = blocks.times(values), int(record.span_id, 16)
    for position, row in enumerate(blocks.rows(values)):
        start, end = times[position]
        step = replace(
            record,
            span_id=f"{(span_id + (position + 1) * _SPREAD) % 2**64 or 1:016x}",
            name=names.STEP,
            start_time=start,
            end_time=end,
            attributes={**identity, a.STEP_INDEX: first + position, **row},
        )
        columns = NEVER if first + position < SPAN_STEPS else WHEREVER
        yield frames.framed(step, batch.scope, is_sampled=batch.is_sampled, columns=columns)


def packed(spans: Sequence[Frame], *, takes_columns: bool) -> Sequence[Frame]:
    """
    Return the spans of a trace with consecutive steps in columns where the transport and the steps allow it.

    A transport that takes columns gets steps of environments in columns from the first step on.
    """
    if not any(span.columns and _can_be_packed(span, takes_columns=takes_columns) for span in spans):
        return spans
    others: list[Frame] = []
    runs: dict[_Key, list[_Step]] = {}
    for span in spans:
        if _can_be_packed(span, takes_columns=takes_columns):
            step = frames.record(span)
            values = step.attributes
            key = (step.parent_id, values.get(a.AGENT_ID), values.get(a.SEGMENT_ID))
            runs.setdefault(key, []).append((span, step))
        else:
            others.append(span)
    columns = [_in_columns(run) for steps in runs.values() for run in _runs(sorted(steps, key=_index))]
    return [*columns, *others]  # reading is faster if the root comes last


def _can_be_packed(span: Frame, *, takes_columns: bool) -> bool:
    return not span.has_rows and span.columns in ((IF_TAKEN, WHEREVER) if takes_columns else (WHEREVER,))


def _index(step: _Step) -> int:
    index: int = step[1].attributes[a.STEP_INDEX]
    return index


def _runs(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Yield runs of consecutive steps, each as long as one span may hold."""
    run: list[_Step] = []
    size = 0
    for step in steps:
        if run and (_index(step) != _index(run[-1]) + 1 or len(run) >= blocks.MAX_STEPS or size >= MAX_BYTES):
            yield run
            run, size = [], 0
        run.append(step)
        size += len(step[0])
    if run:
        yield run


def _in_columns(run: Sequence[_Step]) -> Frame:
    frame, first = run[0]
    rows = [
        {key: value for key, value in step.attributes.items() if key not in _OF_THE_BATCH} for _, step in run
    ]
    starts, ends = [step.start_time for _, step in run], [step.end_time for _, step in run]
    identity = {key: first.attributes[key] for key in _IDENTITY if key in first.attributes}
    columns = blocks.columns(rows)
    batch = replace(
        first,
        span_id=f"{ids.span_id():016x}",
        name=names.STEPS,
        start_time=min(starts),
        end_time=max(ends),
        attributes=identity
        | blocks.encode(columns, first_index=_index(run[0]), start_times=starts, end_times=ends),
    )
    return frames.framed(batch, frame.scope, is_sampled=frame.is_sampled)
