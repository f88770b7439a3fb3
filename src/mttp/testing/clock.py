"""A frozen clock, which makes recordings deterministic."""

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
    A clock that advances by `tick` seconds at each reading; by default it stands still.

    `start` is in nanoseconds since the Unix epoch.
    Readings by mttp's own threads do not advance it.
    Raises ValueError for a negative, infinite or NaN `tick`.
    """

    def __init__(self, start: int = START, tick: float = 0.0) -> None:
        self.start = start
        self._tick = _nanoseconds(tick)
        self._time = start
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time in nanoseconds since the Unix epoch."""
        with self._lock:
            time = self._time
            if not on_writing_thread():
                self._time += self._tick
            return time

    def advance(self, seconds: float) -> None:
        """Move the clock forward; raises ValueError for a negative, infinite or NaN number."""
        with self._lock:
            self._time += _nanoseconds(seconds)


def _nanoseconds(seconds: float) -> int:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a clock can't move by {seconds!r} seconds; give a finite number of at least 0")
    return round(seconds * 1e9)


@contextmanager
def frozen_clock(start: int = START, *, tick: float = 0.0) -> Iterator[FrozenClock]:
    """Use a `FrozenClock` for everything that is recorded inside the block."""
    frozen = FrozenClock(start, tick)
    slot = vars(Clock)["offset"]
    offset = property(lambda _: 0, slot.__set__)
    with patch.object(Clock, "offset", offset), patch.object(clock, "monotonic", frozen.now):
        yield frozen
