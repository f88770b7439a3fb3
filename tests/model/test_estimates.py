"""Estimates from evaluations: closed forms against published figures and counting, intervals by scipy."""

from __future__ import annotations

import math
import sys
from itertools import combinations

import pytest

from mttp.model.estimates import (
    pass_at_k,
    pass_estimates,
    pass_hat_k,
    sample_sizes,
    standard_error,
    t_interval,
    time_quantiles,
)


@pytest.mark.parametrize(("n", "c"), [(1, 0), (1, 1), (4, 0), (4, 1), (5, 3), (6, 6)])
def test_pass_at_k_and_pass_hat_k_are_shares_of_all_draws(n: int, c: int):
    """
    Of all ways to draw k of the n samples: how many have one that passed, and how many have nothing else.
    """
    samples = [place < c for place in range(n)]
    for k in range(1, n + 1):
        draws = list(combinations(samples, k))

        assert pytest.approx(sum(map(any, draws)) / len(draws)) == pass_at_k(n, c, k)
        assert pytest.approx(sum(map(all, draws)) / len(draws)) == pass_hat_k(n, c, k)


def test_fewer_samples_than_k_say_nothing():
    """
    The estimate is undefined there, and its mean is over the other tasks, which are counted.
    """
    assert (None, None) == (pass_at_k(3, 3, 4), pass_hat_k(3, 3, 4))

    (found,) = pass_estimates([(4, 1), (3, 3)], [4])
    assert (4, 1, 1.0, 0.0) == (found.k, found.tasks, found.pass_at_k, found.pass_hat_k)

    (none,) = pass_estimates([(3, 3)], [4])
    assert (0, None, None) == (none.tasks, none.pass_at_k, none.pass_hat_k)


def test_pass_at_1_is_no_first_sample():
    """
    Of 50 tasks with 3 samples each, 57 of the 150 passed, in 29 of the tasks: 38 % and 58 %.
    """
    passes = [3] * 8 + [2] * 12 + [1] * 9 + [0] * 21
    one, three = pass_estimates([(3, c) for c in passes], [1, 3])

    assert 57 == sum(passes)
    assert pytest.approx([0.38, 0.58]) == [one.pass_at_k, three.pass_at_k]


def test_large_counts_stay_exact():
    """
    Binomials beyond a float have quotients all the same.
    """
    assert pytest.approx(1 - 0.99**100, abs=1e-3) == pass_at_k(100_000, 1000, 100)


@pytest.mark.parametrize("k", [0, -1])
def test_no_samples_can_not_be_drawn(k: int):
    """
    A k below 1 is an error of the program.
    """
    with pytest.raises(ValueError, match=r"k=.* is not a number of samples"):
        pass_estimates([(4, 1)], [k])


@pytest.mark.parametrize(
    ("samples", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_sizes_double_up_to_the_samples(samples: int, sizes: list[int]):
    """
    The number of samples itself is the last.
    """
    assert sizes == sample_sizes(samples)


def test_an_interval_is_scipy_s():
    """
    That of a paired t test on the differences.
    """
    stats = pytest.importorskip("scipy.stats")
    after, before = [0.5, 1.0, 0.25, 0.75, 0.0], [0.25, 0.5, 0.5, 0.25, 0.0]
    differences = [one - other for one, other in zip(after, before, strict=True)]
    expected = stats.ttest_rel(after, before).confidence_interval()

    error = standard_error(differences)
    found = t_interval(sum(differences) / 5, error, 5)

    assert pytest.approx(stats.sem(differences)) == error
    assert pytest.approx((expected.low, expected.high)) == found


@pytest.mark.parametrize(
    ("values", "error"),
    [([], None), ([1.0], None), ([0.1 + 0.2, 0.3], 0.0), ([1.7e308, 1.7e308, -1.7e308], None)],
    ids=repr,
)
def test_few_equal_and_huge_values(values: list[float], error: float | None):
    """
    One value has no error, rounding is none, and what is beyond a float is not claimed.
    """
    assert error == standard_error(values)


@pytest.mark.parametrize(("count", "interval"), [(1, None), (2, None), (5, None), (6, (1.0, 1.0))])
def test_few_values_that_are_all_equal_have_no_interval(count: int, interval: tuple[float, float] | None):
    """
    Five of five agree by chance in one of sixteen cases.
    """
    pytest.importorskip("scipy")

    assert interval == t_interval(1.0, standard_error([1.0] * count), count)


def test_without_scipy_there_is_no_interval(monkeypatch: pytest.MonkeyPatch):
    """
    The standard error needs none.
    """
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    assert math.isclose(0.5, standard_error([0.0, 1.0]) or 0.0)
    assert t_interval(0.5, 0.5, 2) is None


def test_quantiles_are_interpolated():
    """
    As numpy does by default.
    """
    found = time_quantiles([0.3, 0.1, 0.2])

    assert found is not None
    assert (3, pytest.approx(0.2), pytest.approx(0.29)) == (found.calls, found.median, found.p95)
    assert time_quantiles([]) is None
