"""`StepBuffer`, which collects an environment's steps until they are written together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mttp.codec import blocks
from mttp.codec.transitions import Row, RowSchema
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.step_batch import StepBatch

if TYPE_CHECKING:
    from mttp.recording.trajectory import Trajectory

__all__ = ["StepBuffer"]


class StepBuffer:
    """
    Collects the steps of one trajectory that have no handles; append a row to `rows` when a step ends.

    The first step starts at `start_time`, each other one when the previous one ends.
    After the first row call `schedule`, after many rows `write`.
    One thread may append while another writes.
    """

    __slots__ = ("_owner", "_writing", "rows", "schema", "start_time")

    def __init__(self, owner: Trajectory, schema: RowSchema, start_time: int) -> None:
        self._owner: Trajectory | None = owner
        self._writing = threading.Lock()
        self.schema = schema
        self.rows: list[Row] = []
        self.start_time = start_time

    def schedule(self) -> None:
        """Have the background thread write the rows."""
        if self._owner is not None:
            self._owner._segment.host.add_buffer(self)

    def write(self, *, wait: bool = True) -> None:
        """Write the rows so far; without `wait`, return at once if another thread is writing."""
        owner = self._owner
        if owner is None or not self.rows or not self._writing.acquire(blocking=wait):
            return
        try:
            while rows := self.rows[: blocks.MAX_STEPS]:
                start = self.start_time
                batch = StepBatch(owner._segment, owner._span_context, owner._place, rows, self.schema, start)
                rewards = batch.rewards()
                # Not before, so that an exception of a signal handler leaves the rows for the next write.
                del self.rows[: len(rows)]
                self.start_time = rows[-1][-1]
                flags = {"terminated": bool(rows[-1][3]), "truncated": bool(rows[-1][4])}
                batch.first_index = owner._add_steps(len(rows), *rewards, flags)
                owner._segment.ended(batch)
        except Exception as error:
            raise_interrupt(error)
            del self.rows[: blocks.MAX_STEPS]
            owner._segment.fault("internal_error", f"steps: {error!r}")
        finally:
            self._writing.release()
        if self.rows:  # appended meanwhile
            self.schedule()

    def close(self) -> None:
        """Write the remaining rows and drop the owner, which must not wait for the garbage collector."""
        self.write()
        self._owner = None
