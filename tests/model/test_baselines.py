"""What a group's rewards amount to, held to published formulas and to numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mttp.model import baselines

NAN = math.nan
rewards = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=16)


@given(rewards, st.sampled_from([0, 1]))
def test_mean_and_deviation_are_numpy_s(values: list[float], ddof: int):
    """
    Within rounding, for whatever rewards there are.
    """
    assert baselines.mean(values) == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-9)
    assert baselines.std(values, ddof) == pytest.approx(float(np.std(values, ddof=ddof)), rel=1e-6, abs=1e-4)


@given(st.floats(-1e300, 1e300), st.integers(2, 12))
def test_equal_rewards_have_no_deviation(value: float, count: int):
    """
    A group without variance is just that, whatever rounding does to a sum.
    """
    assert (value, 0.0) == (baselines.mean([value] * count), baselines.std([value] * count))


def test_a_deviation_far_from_zero_is_not_lost():
    """
    Of rewards that differ in their last digits the deviation is exact.
    """
    assert 1.0 == baselines.std([1e9, 1e9 + 1, 1e9 + 2])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (None, None)),
        ([NAN, math.inf], (None, None)),
        ([0.5], (0.5, None)),
        ([NAN, 0.5], (0.5, None)),
        ([1.0, NAN, 0.0, -math.inf], (0.5, math.sqrt(0.5))),
        ([1.5e308, 1.5e308], (1.5e308, 0.0)),
    ],
)
def test_rewards_that_are_no_numbers_count_for_nothing(
    values: list[float], expected: tuple[float | None, ...]
):
    """
    Of no more rewards than are subtracted from the count there is no deviation.
    """
    assert expected == pytest.approx((baselines.mean(values), baselines.std(values)))


def test_one_reward_deviates_by_nothing_without_correction():
    """
    With ddof 0 the deviation of one reward is zero, as numpy's is.
    """
    assert 0.0 == baselines.std([0.5], ddof=0)


@given(rewards)
def test_grpo_s_advantages(values: list[float]):
    """
    TRL: `(rewards - rewards.mean()) / (rewards.std() + 1e-4)`, torch's deviation having ddof 1.
    """
    mean, std = baselines.mean(values), baselines.std(values)
    found = baselines.advantages(values, "mean_std", mean=mean, std=std)

    expected = (np.array(values) - np.mean(values)) / (np.std(values, ddof=1) + 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@given(rewards)
def test_rloo_s_advantages(values: list[float]):
    """
    Each reward less the mean of the others.
    """
    found = baselines.advantages(values, "leave_one_out", mean=baselines.mean(values), std=None)

    count = len(values)
    expected = [value - (math.fsum(values) - value) / (count - 1) for value in values]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("normalization", ["none", "mean", "mean_std", "leave_one_out"])
def test_a_member_without_a_reward_has_no_advantage(normalization: str):
    """
    It takes nothing away from the others either.
    """
    values = [1.0, NAN, 0.0]
    mean, std = baselines.mean(values), baselines.std(values)

    found = baselines.advantages(values, normalization, mean=mean, std=std)
    alone = baselines.advantages([1.0, 0.0], normalization, mean=mean, std=std)

    assert math.isnan(found[1])
    assert alone == (found[0], found[2])


@pytest.mark.parametrize("normalization", ["mean_std", "leave_one_out"])
def test_one_member_can_t_be_compared(normalization: str):
    """
    Without other members there is no advantage.
    """
    assert [True] == [
        math.isnan(found) for found in baselines.advantages([1.0], normalization, mean=1.0, std=None)
    ]


@pytest.mark.parametrize("normalization", [None, "zscore"])
def test_advantages_of_an_unknown_kind_are_not_computed(normalization: str | None):
    """
    Unrequested and unknown values are not made up.
    """
    assert () == baselines.advantages([1.0, 0.0], normalization, mean=0.5, std=0.7)
