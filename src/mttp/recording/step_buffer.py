"""Steps of an environment that gather until they are written together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from opentelemetry.trace import SpanContext

from mttp.codec import blocks
from mttp.codec.transitions import Row, RowSchema
from mttp.otlp.step_batch import StepBatch
from mttp.recording.segment import Segment

__all__ = ["StepBuffer"]


class BufferOwner(Protocol):
    """What a buffer needs of the episode, or of the agent, whose steps it takes."""

    @property
    def _segment(self) -> Segment:
        """Who makes its spans."""

    @property
    def _span_context(self) -> SpanContext:
        """The span that its steps are children of."""

    @property
    def _place(self) -> Mapping[str, object]:
        """What its spans say of whose they are."""

    def _add_steps(self, count: int, paid: Sequence[float], invalid: int, flags: Mapping[str, bool]) -> int:
        """Enter steps that had no handles; the index of the first."""


class StepBuffer:
    """
    Takes the steps of one trajectory that have no handles: each appends a row to `rows` as it ends.

    The first step began at `start_time`, each of the others as the one before it ended.
    Appending the first row calls `gathers`, appending many calls `write`.
    One thread may append while another writes.
    """

    __slots__ = ("_owner", "_writing", "form", "rows", "start_time")

    def __init__(self, owner: BufferOwner, form: RowSchema, start_time: int) -> None:
        self._owner: BufferOwner | None = owner
        self._writing = threading.Lock()
        self.form = form
        self.rows: list[Row] = []
        self.start_time = start_time

    def gathers(self) -> None:
        """Have the rows written within the session's interval."""
        if self._owner is not None:
            self._owner._segment.host.add_buffer(self)

    def write(self, *, wait: bool = True) -> None:
        """Hand on the rows so far; without `wait` nothing, where another thread is at it already."""
        owner = self._owner
        if owner is None or not self.rows or not self._writing.acquire(blocking=wait):
            return
        try:
            while rows := self.rows[: blocks.MAX_STEPS]:
                del self.rows[: len(rows)]
                start, self.start_time = self.start_time, rows[-1][-1]
                self._hand_on(owner, rows, start)
        except Exception as error:  # whatever a foreign object raises when it is looked at
            owner._segment.fault("internal_error", f"steps: {error!r}")
        finally:
            self._writing.release()
        if self.rows:  # which came meanwhile
            self.gathers()

    def close(self) -> None:
        """Hand on what is left; the owner is let go, and is not to wait for the garbage collector."""
        self.write()
        self._owner = None

    def _hand_on(self, owner: BufferOwner, rows: Sequence[Row], start_time: int) -> None:
        batch = StepBatch(owner._segment, owner._span_context, owner._place, rows, self.form, start_time)
        terminated, truncated = rows[-1][3:5]
        flags = {"terminated": bool(terminated), "truncated": bool(truncated)}
        batch.first_index = owner._add_steps(len(rows), *batch.paid(), flags)
        owner._segment.ended(batch)
