"""
The clocks of mttp, and a clock for span times: wall clock at the start, monotonic from there on.

Programs and tests replace the functions of `time`; freezegun exchanges them in all modules.
The functions here come from a module object of our own, even if mttp is imported while the clock is frozen.
time-machine patches the wall clock and `time.monotonic` in C: an episode that starts then has its times, but
durations are real, and waits end, because both use the performance counter.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from threading import Condition
from typing import Any, Final

__all__ = ["MOMENT", "Clock", "monotonic", "offset", "seconds", "sleep", "wait_for", "wall"]


def _real_time() -> Any:
    """Return a new module object of the C module `time`, whose functions nobody has replaced."""
    spec: Any = importlib.util.find_spec("time")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_time = _real_time()

wall: Callable[[], int] = _time.time_ns
"""Returns wall clock time in nanoseconds since the Unix epoch."""
monotonic: Callable[[], int] = _time.perf_counter_ns
"""Returns monotonic time in nanoseconds."""
seconds: Callable[[], float] = _time.perf_counter
"""Returns monotonic time in seconds, for deadlines and durations."""
sleep: Callable[[float], None] = _time.sleep
"""Waits for a number of seconds."""

MOMENT: Final = 1000
"""Nanoseconds that a span without a duration lasts: Jaeger counts microseconds, and moves a zero end."""


def offset() -> int:
    """Return wall clock time minus monotonic time, in nanoseconds."""
    return wall() - int(_time.perf_counter_ns())  # also where a test has frozen `monotonic`


def wait_for(condition: Condition, predicate: Callable[[], object], timeout: float) -> bool:
    """Wait like `condition.wait_for`, whose own clock may be frozen; returns whether `predicate` is true."""
    until = seconds() + timeout
    while not (is_true := bool(predicate())) and (left := until - seconds()) > 0:
        condition.wait(left)
    return is_true


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
