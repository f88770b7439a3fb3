"""Time as spans need it: wall clock at the start, monotonic from there on."""

from __future__ import annotations

import time
from time import perf_counter_ns as monotonic

__all__ = ["Clock", "monotonic", "offset"]


def offset() -> int:
    """The wall clock's lead over the monotonic one, in nanoseconds."""
    return time.time_ns() - time.perf_counter_ns()


class Clock:
    """
    Nanoseconds since the Unix epoch that never run backwards, whatever happens to the wall clock.

    The time is `offset + monotonic()`, which is how those look at it to whom a call more matters.
    """

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = offset()

    def now(self) -> int:
        """The time."""
        return self.offset + monotonic()
