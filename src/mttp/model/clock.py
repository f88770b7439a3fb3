"""A clock for span times: wall clock at the start, monotonic from there on."""

from __future__ import annotations

import time
from time import perf_counter_ns as monotonic

__all__ = ["Clock", "monotonic", "offset"]


def offset() -> int:
    """Return wall clock time minus monotonic time, in nanoseconds."""
    return time.time_ns() - time.perf_counter_ns()


class Clock:
    """
    A clock of nanoseconds since the Unix epoch that never runs backwards.

    The time is `offset + monotonic()`; hot paths compute it in place to save a call.
    """

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = offset()

    def now(self) -> int:
        """Return the current time in nanoseconds since the Unix epoch."""
        return self.offset + monotonic()
