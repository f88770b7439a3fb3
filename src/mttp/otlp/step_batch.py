"""Consecutive steps of an environment, which are recorded together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.trace import SpanContext

from mttp.codec import blocks, transitions
from mttp.codec.blocks import Column
from mttp.codec.pending import TRANSITIONS
from mttp.codec.transitions import Row, RowSchema
from mttp.model import ids
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.frames import IF_TAKEN, WHEREVER, Frame
from mttp.otlp.span_fields import flags
from mttp.otlp.spans import AUTO, Trace
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["StepBatch"]


class StepBatch:
    """
    Up to 1,000 consecutive steps of one episode, as rows.

    The first step started at `start_time`, each other one at the end of the step before.
    Span processors do not see these steps.
    """

    name = names.STEPS

    def __init__(
        self,
        trace: Trace,
        parent: SpanContext,
        place: Mapping[str, object],
        rows: Sequence[Row],
        form: RowSchema,
        start_time: int,
    ) -> None:
        """`place` has the attributes of their episode and agent."""
        self._trace, self._parent, self._rows, self._form = trace, parent, rows, form
        self._place, self._start_time = place, start_time
        self._numbers = transitions.finite_rewards([row[2] for row in rows])
        self._known_columns: Mapping[str, Column] | None = None
        self.count = len(rows)
        """Number of steps."""
        self.first_index = 0
        """Index of the first step."""

    def rewards(self) -> tuple[Sequence[float], int]:
        """Return the finite rewards, and the number of steps with an invalid reward."""
        if self._numbers is not None:
            return self._numbers, 0
        columns, count = self._columns(), self.count
        return blocks.entries(columns, a.STEP_REWARD, count), blocks.reward_errors(columns, count)

    def _columns(self) -> Mapping[str, Column]:
        """Return the attributes of the steps in columns; faults are counted on first use."""
        if self._known_columns is None:
            *facts, _ = zip(*self._rows, strict=True)
            self._known_columns = self._form.columns(*facts)
            for faults in blocks.entries(self._known_columns, a.FAULTS, self.count):
                for fault in faults:
                    kind, _, detail = fault.partition(": ")
                    self._trace.fault(kind, detail)
        return self._known_columns

    def frame(self) -> Frame:
        """Return a frame of the steps: as rows, or in columns if a value needs a conversion."""
        attributes = {**self._trace.identity, **self._place, **self._steps()}
        return Frame.of(
            self._trace.trace_id,
            (
                ids.span_id(),
                self._parent.span_id,
                names.STEPS,
                1,
                self._start_time,
                self._rows[-1][-1],
                flags(self._parent),
                attributes,
                None,
            ),
            scope=self._trace.origin.number,
            is_last=False,
            of_episode=a.EPISODE_ID in attributes,
            is_sampled=self._trace.flags.sampled,
            columns=IF_TAKEN if self._trace.steps == AUTO else WHEREVER,
            has_rows=True,
        )

    def _steps(self) -> dict[str, Any]:
        numbers = self._numbers
        rows = None if numbers is None else self._form.serialize(self._rows, numbers)
        if rows is not None:
            return {TRANSITIONS: (self.first_index, self._start_time, *rows)}
        ends = [row[-1] for row in self._rows]
        starts = [self._start_time, *ends[:-1]]
        try:
            return blocks.encode(
                self._columns(), first_index=self.first_index, start_times=starts, end_times=ends
            )
        except Exception as error:
            raise_interrupt(error)
            self._trace.fault("internal_error", f"steps: {error!r}")
            return {}
