"""A clock that stands still or ticks, so that what is recorded is the same each time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from mttp.model import clock
from mttp.model.clock import Clock
from mttp.testing.ids import on_writing_thread

__all__ = ["FrozenClock", "frozen_clock"]

START = 1_735_689_600 * 10**9
"""The first moment of 2025, in nanoseconds since the Unix epoch."""


class FrozenClock:
    """
    A time that moves by itself only as far as `tick` says: so many seconds with each look at it.

    `start` is in nanoseconds since the Unix epoch.
    Looks by mttp's own threads move nothing.
    Raises ValueError for a time that would run backwards.
    """

    def __init__(self, start: int = START, tick: float = 0.0) -> None:
        self.start = start
        self._tick = _nanoseconds(tick)
        self._time = start
        self._lock = threading.Lock()

    def now(self) -> int:
        """Look at the time, in nanoseconds since the Unix epoch."""
        with self._lock:
            shown = self._time
            if not on_writing_thread():
                self._time += self._tick
            return shown

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        with self._lock:
            self._time += _nanoseconds(seconds)


def _nanoseconds(seconds: float) -> int:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"time can't move by {seconds!r} seconds; give zero or more")
    return round(seconds * 1e9)


@contextmanager
def frozen_clock(start: int = START, *, tick: float = 0.0) -> Iterator[FrozenClock]:
    """Have everything that is recorded inside the block timed by a `FrozenClock`."""
    frozen = FrozenClock(start, tick)
    slot = vars(Clock)["offset"]
    offset = property(lambda _: 0, slot.__set__)
    with patch.object(Clock, "offset", offset), patch.object(clock, "monotonic", frozen.now):
        yield frozen
