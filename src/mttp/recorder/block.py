"""Transitions of an environment that gather until they are written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mttp.codec import blocks
from mttp.codec.blocks import Column
from mttp.livespan import VALUE_BYTES
from mttp.semconv import attributes as a

__all__ = ["Block", "Taken"]


class Taken(NamedTuple):
    """Steps that were taken out of a block, to be written as one span."""

    length: int
    """How many."""
    start_times: Sequence[int]
    """When each began; nanoseconds since the Unix epoch."""
    end_times: Sequence[int]
    """When each ended, which is when the next one began."""
    columns: Mapping[str, Column]
    """What they say."""

    @property
    def size(self) -> int:
        """Roughly what they take in a file, in bytes."""
        entries = [column.entries for column in self.columns.values()]
        return sum(getattr(each, "nbytes", VALUE_BYTES * len(each)) for each in entries)

    @property
    def paid(self) -> Sequence[float]:
        """What was paid, by the steps that state a number."""
        return blocks.entries(self.columns, a.STEP_REWARD, self.length)

    @property
    def invalid(self) -> int:
        """How many of the others paid something that is none."""
        return blocks.entries(self.columns, a.STEP_REWARD_STATUS, self.length).count("error")

    @property
    def faults(self) -> list[str]:
        """What is wrong with what was recorded."""
        return [fault for faults in blocks.entries(self.columns, a.FAULTS, self.length) for fault in faults]

    @property
    def flags(self) -> dict[str, bool]:
        """What the last of them says of the end."""
        said = {"terminated": a.STEP_TERMINATED, "truncated": a.STEP_TRUNCATED}
        return {name: bool(self.columns[key].entries[-1]) for name, key in said.items()}


class Block:
    """
    Consecutive steps that gather until they are written together.

    `rows` takes a tuple for each step as it ends: what `columns` is given of it, then the time of its end.
    The first began at `start_time`, each of the others as the one before it ended.
    One thread may append while another takes.
    """

    __slots__ = ("_columns", "rows", "start_time")

    def __init__(self, columns: Callable[..., Mapping[str, Column]], start_time: int) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.start_time = start_time
        self._columns = columns

    def take(self) -> Taken | None:
        """The steps so far, as many as one span may hold, out of the block; None where there are none."""
        taken = self.rows[: blocks.MAX_STEPS]
        if not taken:
            return None
        del self.rows[: len(taken)]
        *facts, ends = zip(*taken, strict=True)
        starts, self.start_time = (self.start_time, *ends[:-1]), ends[-1]
        return Taken(len(taken), starts, ends, self._columns(*facts))
