"""The frozen clock: recordings have the times that the test sets."""

from __future__ import annotations

import threading
import time

import pytest

import mttp
from mttp.model.clock import Clock
from mttp.testing import FrozenClock, frozen_clock


def test_time_stands_still_until_it_is_advanced() -> None:
    """
    Durations are the sums of the calls of `advance`.
    """
    with frozen_clock() as clock, mttp.configure("memory://") as session, mttp.episode() as episode:
        clock.advance(1.5)
        with episode.step():
            clock.advance(0.25)

    (episode,) = mttp.read(session)
    assert clock.start == episode.start_time
    assert 1.75 == episode.duration
    assert (1_500_000_000, 1_750_000_000) == tuple(
        moment - clock.start for moment in (episode.steps[0].start_time, episode.steps[0].end_time)
    )


def test_each_reading_can_advance_the_clock() -> None:
    """
    With `tick`, events have increasing times.
    """
    with frozen_clock(1000, tick=2e-9):
        seen = [Clock().now(), Clock().now(), Clock().now()]

    assert [1000, 1002, 1004] == seen


def test_afterwards_clocks_are_real() -> None:
    """
    Clocks created before and inside the block show the real time again.
    """
    before = Clock()
    with frozen_clock(5):
        inside = Clock()
        assert (5, 5) == (before.now(), inside.now())

    assert abs(before.now() - time.time_ns()) < 60e9
    assert abs(inside.now() - time.time_ns()) < 60e9


def test_nested_clocks() -> None:
    """
    After an inner block, the outer block's clock applies again.
    """
    with frozen_clock(5), frozen_clock(7):
        pass
    with frozen_clock(5):
        with frozen_clock(7):
            inner = Clock().now()
        outer = Clock().now()

    assert (7, 5) == (inner, outer)


def test_an_episode_from_before_ends_no_earlier_than_it_began() -> None:
    """
    The end time is not before the start time, although the frozen clock is behind.
    """
    with mttp.configure("memory://") as session:
        episode = mttp.episode()
        with frozen_clock(1):
            episode.end()

    (found,) = mttp.read(session)
    assert (0.0, ()) == (found.duration, found.faults)


def test_readings_by_mttp_s_threads_do_not_advance_the_clock() -> None:
    """
    Their timing varies.
    """
    clock = FrozenClock(1000, tick=1.0)
    seen: list[int] = []
    own = threading.Thread(target=lambda: seen.append(clock.now()), name="mttp-flush")
    own.start()
    own.join()

    assert ([1000], 1000) == (seen, clock.now())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_wrong_ticks_are_errors(seconds: float) -> None:
    """
    A negative, infinite or NaN tick raises ValueError.
    """
    clock = FrozenClock()

    with pytest.raises(ValueError, match="a clock can't move by"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="a clock can't move by"):
        FrozenClock(tick=seconds)
