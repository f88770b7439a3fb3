"""Times are those of the wall clock at the start, and never run backwards from there."""

from __future__ import annotations

import time

import pytest

from mttp.model.clock import Clock


def test_it_tells_the_wall_clock() -> None:
    """
    In nanoseconds since the Unix epoch.
    """
    assert abs(Clock().now() - time.time_ns()) < 1e9


def test_a_wall_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Durations stay right over a correction of the time.
    """
    clock = Clock()
    first = clock.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)

    assert first <= clock.now() < first + 60e9
