"""Steps that gather until they are written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mttp.codec import blocks
from mttp.codec.blocks import Column
from mttp.semconv import attributes as a

__all__ = ["Block", "Taken"]


class Taken(NamedTuple):
    """Steps that were taken out of a block, to be written as one span."""

    values: dict[str, Any]
    """The span's attributes, but for what says whose steps they are."""
    count: int
    """How many steps."""
    start_time: int
    """When the first began; nanoseconds since the Unix epoch."""
    end_time: int
    """When the last ended."""
    paid: Sequence[float]
    """What was paid, by the steps that state a number."""
    invalid: int
    """How many of the others paid something that is none."""
    faults: Sequence[str]
    """What is wrong with what was recorded."""


class Block:
    """
    Consecutive steps that gather until they are written together.

    `rows` takes a tuple for each step as it ends: what `columns` is given of it, then start and end.
    One thread may append while another takes.
    """

    __slots__ = ("_columns", "first_index", "rows")

    def __init__(self, first_index: int, columns: Callable[..., Mapping[str, Column]]) -> None:
        self.first_index = first_index
        self.rows: list[tuple[Any, ...]] = []
        self._columns = columns

    def take(self) -> Taken | None:
        """The steps so far, which are no longer in the block; None where there are none."""
        count = min(len(self.rows), blocks.MAX_STEPS)
        if not count:
            return None
        taken = self.rows[:count]
        del self.rows[:count]
        first, self.first_index = self.first_index, self.first_index + count
        *facts, starts, ends = zip(*taken, strict=True)
        columns = self._columns(*facts)
        return Taken(
            values=blocks.encode(columns, first_index=first, start_times=starts, end_times=ends),
            count=count,
            start_time=starts[0],
            end_time=ends[-1],
            paid=_entries(columns, a.STEP_REWARD),
            invalid=list(_entries(columns, a.STEP_REWARD_STATUS)).count("error"),
            faults=[fault for faults in _entries(columns, a.FAULTS) for fault in faults],
        )


def _entries(columns: Mapping[str, Column], key: str) -> Any:
    return columns[key].entries if key in columns else ()
