"""Transitions of an environment that gather until they are written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from mttp.codec import blocks, transitions
from mttp.codec.blocks import Column
from mttp.livespan import weight
from mttp.semconv import attributes as a

__all__ = ["Block", "Layout", "Row", "Rows", "Taken"]

Row: TypeAlias = tuple[Any, ...]
"""Observation, action, reward, terminated and truncated of a step, whatever else is known, and its end."""
_ROW_BYTES = 26
"""Times, reward and flags of a step in columns."""


class Layout(Protocol):
    """What rows hold, and how columns are made of them."""

    def columns(self, *facts: Any) -> Mapping[str, Column]:
        """The columns; a fact is what the rows have at one place, but for their ends."""

    def travelling(self, rows: Sequence[Row], paid: Sequence[float]) -> tuple[Any, ...] | None:
        """The rows, which were paid that, as `codec.transitions` takes them; None where that can't be."""


class Taken:
    """Steps that were taken out of a block, to be written as one span; they become columns when asked."""

    def __init__(self, rows: Sequence[Row], start_time: int, layout: Layout) -> None:
        """The first began at `start_time`, each of the others when the one before it ended."""
        self.rows = rows
        self.start_time = start_time
        self.layout = layout

    def __len__(self) -> int:
        """How many."""
        return len(self.rows)

    @property
    def end_time(self) -> int:
        """When the last of them ended, in nanoseconds since the Unix epoch."""
        return self.rows[-1][-1]  # type: ignore[no-any-return]  # a row's last is a time

    @property
    def end_times(self) -> list[int]:
        """When each ended; nanoseconds since the Unix epoch."""
        return [row[-1] for row in self.rows]

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """What they say."""
        *facts, _ = zip(*self.rows, strict=True)
        return self.layout.columns(*facts)

    @property
    def size(self) -> int:
        """Roughly what they take in a file, in bytes."""
        first = self.rows[0][0]
        if isinstance(first, (bytes, np.ndarray)):  # and so are the others
            return len(self.rows) * (_ROW_BYTES + (len(first) if isinstance(first, bytes) else first.nbytes))
        return sum(_ROW_BYTES + weight([*row[:2]]) for row in self.rows)

    @cached_property
    def numbers(self) -> Sequence[float] | None:
        """What each was paid, where all state numbers of one kind, and finite ones; else None."""
        return transitions.paid([row[2] for row in self.rows])

    def paid(self) -> tuple[Sequence[float], int]:
        """What was paid by the steps that state a number, and how many paid something that is none."""
        if self.numbers is not None:
            return self.numbers, 0
        count = len(self.rows)
        return blocks.entries(self.columns, a.STEP_REWARD, count), blocks.unpaid(self.columns, count)

    @property
    def flags(self) -> dict[str, bool]:
        """What the last of them says of the end."""
        terminated, truncated = self.rows[-1][3:5]
        return {"terminated": bool(terminated), "truncated": bool(truncated)}

    def said(self, first_index: int) -> dict[str, Any]:
        """Their span's attributes."""
        ends = self.end_times
        starts = [self.start_time, *ends[:-1]]
        return blocks.encode(self.columns, first_index=first_index, start_times=starts, end_times=ends)

    @property
    def faults(self) -> list[str]:
        """What is wrong with what was recorded."""
        found = blocks.entries(self.columns, a.FAULTS, len(self.rows))
        return [fault for faults in found for fault in faults]

    def travelling(self) -> tuple[Any, ...] | None:
        """The steps as another process takes them; None where they can't travel."""
        found = None if self.numbers is None else self.layout.travelling(self.rows, self.numbers)
        return None if found is None else (self.start_time, *found)


class Rows:
    """Steps that were handles of their own: what each says as its attributes, but for whose it is."""

    faults: Sequence[str] = ()
    """What is wrong with them was counted when it was recorded."""

    def __init__(
        self, said: Sequence[Mapping[str, Any]], start_times: Sequence[int], end_times: Sequence[int]
    ) -> None:
        self._said = said
        self._times = {"start_times": start_times, "end_times": end_times}

    def said(self, first_index: int) -> dict[str, Any]:
        """Their span's attributes."""
        return blocks.encode(blocks.columns(self._said), first_index=first_index, **self._times)

    def travelling(self) -> None:
        """Their values may be anything."""


class Block:
    """
    Consecutive steps that gather until they are written together.

    `rows` takes one for each step as it ends. The first step began at `start_time`, each of the others as
    the one before it ended. One thread may append while another takes.
    """

    __slots__ = ("layout", "rows", "start_time")

    def __init__(self, layout: Layout, start_time: int) -> None:
        self.rows: list[Row] = []
        self.start_time = start_time
        self.layout = layout

    def take(self) -> Taken | None:
        """The steps so far, as many as one span may hold, out of the block; None where there are none."""
        taken = self.rows[: blocks.MAX_STEPS]
        if not taken:
            return None
        del self.rows[: len(taken)]
        start, self.start_time = self.start_time, taken[-1][-1]
        return Taken(taken, start, self.layout)
