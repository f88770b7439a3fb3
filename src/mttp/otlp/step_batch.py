"""Consecutive steps of an environment as one span in columns, or as one span per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from opentelemetry.trace import SpanContext

from mttp.codec import blocks, transitions
from mttp.codec.blocks import Column
from mttp.codec.pending import TRANSITIONS, Pending
from mttp.codec.transitions import Row, RowSchema
from mttp.model import ids
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.frames import Frame
from mttp.otlp.spans import AUTO, SPAN_BYTES, RecordingSpan, Trace, weight
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["StepBatch"]

_ROW_BYTES = 26
"""Size in bytes of times, reward and flags of a step in columns."""
_SCORE_BYTES = 8
"""Size in bytes of a reward component of a step in columns."""
_SPREAD = 0x9E3779B97F4A7C15
"""An odd increment that spreads the ids of a batch's steps over 64 bits."""


class StepBatch(RecordingSpan):
    """
    Up to 1,000 consecutive steps of one episode, as rows.

    The writer thread lays them out in columns or as spans; its worker process encodes most columns.
    """

    def __init__(
        self,
        trace: Trace,
        parent: SpanContext,
        place: Mapping[str, object],
        rows: Sequence[Row],
        form: RowSchema,
        start_time: int,
    ) -> None:
        """
        The first step started at `start_time`, each other one at the end of the step before.

        `place` has the attributes of their episode and agent. Span processors do not see these steps.
        """
        self._name = names.STEPS
        self.encoded = {**trace.identity, **place}
        self._trace, self._parent, self._span_id = trace, parent, ids.span_id()
        self._start_time, self._end_time = start_time, rows[-1][-1]
        self._rows: Sequence[Row] | None = rows
        self._form = form
        self._columns: Mapping[str, Column] | None = None
        self._numbers = transitions.finite_rewards([row[2] for row in rows])
        self.count = len(rows)
        self._size = SPAN_BYTES + self._row_bytes(rows)
        self.first_index = 0
        """Index of the first step."""
        self.is_spread = trace.steps == AUTO
        """Whether transports without columns get one span per step."""

    def rewards(self) -> tuple[Sequence[float], int]:
        """Return the finite rewards, and the number of steps with an invalid reward."""
        if self._numbers is not None:
            return self._numbers, 0
        columns, count = self.columns, self.count
        return blocks.entries(columns, a.STEP_REWARD, count), blocks.reward_errors(columns, count)

    @staticmethod
    def _row_bytes(rows: Sequence[Row]) -> int:
        first, scores = rows[0][0], rows[0][-2]
        row_bytes = _ROW_BYTES + _SCORE_BYTES * len(scores or ())
        if isinstance(first, (bytes, np.ndarray)):  # the others have the same type
            return len(rows) * (row_bytes + (len(first) if isinstance(first, bytes) else first.nbytes))
        return sum(row_bytes + weight([*row[:2]]) for row in rows)

    # As columns.

    @property
    def columns(self) -> Mapping[str, Column]:
        """The attributes of the steps in columns; faults are counted on first use."""
        rows = self._rows
        if self._columns is None and rows is not None:
            *facts, _ = zip(*rows, strict=True)
            found = self._form.columns(*facts)
            if self._columns is None:  # another transport's thread may have built them meanwhile
                self._columns = found
                for faults in blocks.entries(found, a.FAULTS, self.count):
                    for fault in faults:
                        kind, _, detail = fault.partition(": ")
                        self._trace.fault(kind, detail)
        return self._columns or {}

    @property
    def values(self) -> dict[str, Any]:
        """All recorded attributes."""
        rows = self._rows
        if rows is not None:
            ends = [row[-1] for row in rows]
            starts = [self.started, *ends[:-1]]
            try:
                encoded = blocks.encode(
                    self.columns, first_index=self.first_index, start_times=starts, end_times=ends
                )
                self.encoded.update(encoded)
            except Exception as error:
                raise_interrupt(error)
                self._trace.fault("internal_error", f"steps: {error!r}")
            self._rows = self._columns = None
        return self.encoded

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self.encoded, self._rows = values, None

    def facts(self) -> tuple[dict[str, Any], Pending | None]:
        """Return the attributes; columns are encoded on first use."""
        return self._as_rows() or (self.values.copy(), None)

    def _as_rows(self) -> tuple[dict[str, Any], Pending] | None:
        """Return the attributes with the steps as rows; None if a value needs a conversion."""
        rows, numbers = self._rows, self._numbers
        plain_rows = None if rows is None or numbers is None else self._form.serialize(rows, numbers)
        if plain_rows is None:
            return None
        return self.encoded.copy(), {TRANSITIONS: (self.first_index, self.started, *plain_rows)}

    def frame(self) -> Frame | None:
        """Return a frame of the steps as rows; None if a value needs a conversion."""
        facts = self._as_rows()
        return None if facts is None else self._frame(*facts)

    def with_values(self, values: dict[str, Any]) -> StepBatch:
        """Return a copy of the ended span with other attributes."""
        shown = super().with_values(values)
        shown._rows = None
        return shown

    # As spans.

    def spans(self) -> Iterator[RecordingSpan]:
        """Yield one span per step, with equal ids in each call."""
        values = self.values
        identity = {key: values[key] for key in _IDENTITY if key in values}
        times = blocks.times(values)
        for position, row in enumerate(blocks.rows(values)):
            start, end = times[position]
            yield RecordingSpan.over(
                names.STEP,
                {**identity, a.STEP_INDEX: self.first_index + position, **row},
                self._trace,
                self._parent,
                span_id=(self._span_id + (position + 1) * _SPREAD) % 2**64 or 1,
                start_time=start,
                end_time=end,
            )


_IDENTITY = (a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID)
