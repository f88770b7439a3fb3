"""What a report states about numbers."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from mttp.model.statistics.descriptive import Figures, Window, curve, figures, mean_interval, windows
from mttp.pages.charts import plot, sparkline
from mttp.pages.words import count, duration, moment, number, shares, shortened

NAN = math.nan


def test_numbers_that_are_not_known_are_left_out():
    """
    NaN is no number, neither in the count nor in the mean.
    """
    assert Figures(3, 2.0, 1.0, 2.0, 3.0) == figures(np.array([1.0, NAN, 3.0, 2.0]))


def test_infinities_are_no_numbers():
    """
    A mean of them would say nothing.
    """
    assert Figures(1, 2.0, 2.0, 2.0, 2.0) == figures(np.array([math.inf, 2.0, -math.inf]))
    assert [None, 2.0] == curve(np.array([math.inf, 2.0]))


def test_without_numbers_there_are_no_figures():
    """
    The mean of nothing is not known.
    """
    assert Figures(0, None, None, None, None) == figures(np.array([NAN]))


def test_the_interval_of_independent_numbers_is_student_s():
    """
    A textbook example: ten measurements, nine degrees of freedom, t = 2.262.
    """
    values = np.array([9.0, 11.0] * 5)
    half = 2.2621571628 * values.std(ddof=1) / math.sqrt(10)
    found = mean_interval(values, [f"task {number}" for number in range(10)])

    assert found.bounds == pytest.approx((10 - half, 10 + half))
    assert "Student t, 95 %" == found.method
    assert found.bounds == mean_interval(values, [""] * 10).bounds


def test_the_interval_of_repeated_tasks_is_clustered():
    """
    It is that of an ordinary least squares fit of a constant with clustered errors, factor C/(C-1).
    """
    values = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    tasks = ["a", "a", "b", "b", "c", "c", ""]
    mean = values.mean()
    sums = [2 - 2 * mean, 1 - 2 * mean, -2 * mean, 1 - mean]
    error = math.sqrt(sum(total**2 for total in sums) * 4 / 3) / 7
    half = 3.1824463053 * error  # three degrees of freedom

    found = mean_interval(values, tasks)

    assert found.bounds == pytest.approx((mean - half, mean + half))
    assert "clustered by task, 95 %, 4 tasks" == found.method


def test_ten_copies_of_each_number_do_not_narrow_a_clustered_interval():
    """
    Repeated samples of a task say nothing new about other tasks.
    """
    values, tasks = np.array([0.0, 1.0, 0.5]), ["a", "b", "c"]
    once = mean_interval(values, tasks).bounds
    copied = mean_interval(np.repeat(values, 10), [task for task in tasks for _ in range(10)]).bounds

    assert once == pytest.approx(copied)


@pytest.mark.parametrize(
    ("values", "tasks", "reason"),
    [
        ([1.0, NAN], ["a", "b"], "fewer than two numbers"),
        ([], [], "fewer than two numbers"),
        ([1.0, 2.0], ["a", "a"], "all numbers are of one task"),
        ([1e308, -1e308], ["a", "b"], "the numbers are too large"),
    ],
)
def test_where_there_is_no_interval_there_is_a_reason(values: list[float], tasks: list[str], reason: str):
    """
    It says what an interval would need.
    """
    found = mean_interval(np.array(values), tasks)

    assert (None, None, reason) == (found.bounds, found.method, found.reason)


def test_without_scipy_there_is_no_interval(monkeypatch: pytest.MonkeyPatch):
    """
    It is left out, the reason says what to install, and nothing fails.
    """
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    found = mean_interval(np.array([1.0, 2.0]), ["a", "b"])

    assert (None, "scipy is not installed: pip install 'mttp[study]'") == (found.bounds, found.reason)


def test_windows_are_the_two_ends():
    """
    A fifth of the episodes each, with how many of their returns are known.
    """
    found = windows(np.array([0.0, NAN, *[5.0] * 6, 1.0, 3.0]))

    assert (Window(2, 1, 0.0), Window(2, 2, 2.0)) == found
    assert None is windows(np.array([1.0]))
    assert (100, 100) == tuple(one.episodes for one in windows(np.zeros(10_000)) or ())


def test_a_curve_is_the_mean_of_stretches():
    """
    A long series is averaged; a stretch without numbers is a gap.
    """
    values = np.array([1.0, 3.0, NAN, NAN, 5.0, NAN])

    assert [2.0, None, 5.0] == curve(values, points=3)
    assert [1.0, 3.0, None, None, 5.0, None] == curve(values)
    assert [] == curve(np.array([]))


def test_a_sparkline_goes_from_lowest_to_highest():
    """
    The lowest is the lowest block, a gap a space, a flat line in the middle.
    """
    assert ["▁▅ █", "▅▅", ""] == [sparkline([0.0, 0.5, None, 1.0]), sparkline([7.0, 7.0]), sparkline([])]


def test_a_plot_has_labelled_rows():
    """
    Each row says the value at its upper edge.
    """
    assert ["2 │  █", "1 │▁ █"] == plot([0.0, None, 2.0], rows=2)
    assert [] == plot([None])


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "-"), (3.0, "3"), (1234.0, "1,234"), (0.123456, "0.1235"), (1e12, "1e+12")]
)
def test_numbers_are_short(value: float | None, expected: str):
    """
    Four digits say enough in a report.
    """
    assert expected == number(value)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (3e-9, "3 ns"),
        (0.0025, "2.5 ms"),
        (61.0, "1.02 min"),
        (7200.0, "2 h"),
        (2e5, "2.31 d"),
        (9460 * 86400.0, "9,460 d"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float | None, expected: str):
    """
    From nanoseconds to days.
    """
    assert expected == duration(seconds)


def test_words_read_well():
    """
    Plurals, moments, shares, and text that is too long.
    """
    assert ["1 episode", "1,445 episodes"] == [count(1, "episode"), count(1445, "episode")]
    assert ["2025-06-15 15:06:40", "-"] == [moment(1_750_000_000_999_999_999), moment(None)]
    assert ["success 2, none 1", "-"] == [shares({"success": 2, "": 1}), shares({})]
    assert "abcdef… (3 more characters)" == shortened("abcdefghi", 6)
