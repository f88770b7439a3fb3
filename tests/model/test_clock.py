"""Times are those of the wall clock at the start, and never run backwards from there."""

from __future__ import annotations

import time

import freezegun
import pytest

import mttp
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


def test_a_frozen_clock_of_a_test_freezes_no_time_and_no_wait() -> None:
    """freezegun exchanges the functions of `time` in every module."""
    before = time.time_ns()
    session = mttp.configure("memory://")
    episode = mttp.episode()
    with freezegun.freeze_time("2020-01-01"):
        with episode.step(), mttp.episode():
            pass
        episode.end()
        assert session.flush()
        assert session.close()
    after = time.time_ns()

    for each in mttp.read(session):
        for timed in (each, *each.steps):
            assert before <= (timed.start_time or 0) <= (timed.end_time or 0) <= after
