"""The statistics of diagnoses against published figures and definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mttp.model import Tokens
from mttp.study import kl_estimates
from mttp.study.diagnosing.agreement import intraclass
from mttp.study.diagnosing.trends import share_of, split_windows, trend_of


def test_kl_estimates_are_schulmans() -> None:
    """
    k1 = -log r, k2 = (log r)**2 / 2, k3 = (r - 1) - log r, each a mean over tokens.
    """
    block = Tokens(ids=[1, 2], logprobs=[-1.0, -2.0], ref_logprobs=[-1.5, -1.0])
    found = kl_estimates([block])

    assert found is not None
    assert 2 == found.tokens
    assert found.k1 == pytest.approx(-(-0.5 + 1.0) / 2)
    assert found.k2 == pytest.approx((0.25 + 1.0) / 4)
    assert found.k3 == pytest.approx((math.exp(-0.5) - 1 + 0.5 + math.e - 1 - 1) / 2)


def test_kl_estimates_have_the_expectation() -> None:
    """
    Of two known distributions: k1 and k3 are unbiased.
    """
    rng = np.random.default_rng(1)
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    ids = rng.choice(3, 100_000, p=policy)
    found = kl_estimates([Tokens(ids=ids, logprobs=np.log(policy)[ids], ref_logprobs=np.log(reference)[ids])])
    expected = float(stats.entropy(policy, reference))

    assert found is not None
    assert [found.k1, found.k3] == pytest.approx([expected, expected], abs=0.003)


def test_tokens_that_were_not_sampled_do_not_count() -> None:
    """
    Nor do those without a finite log probability; without the reference there is no estimate.
    """
    masked = Tokens(
        ids=[1, 2, 3], logprobs=[-1.0, -9.0, -1.0], ref_logprobs=[-1.0, -1.0, -math.inf], masks=[1, 0, 1]
    )

    assert (1, 0.0) == ((found := kl_estimates([masked])) and found.tokens, found and found.k3)
    assert kl_estimates([Tokens(ids=[1], logprobs=[-1.0])]) is None


def test_intraclass_is_that_of_shrout_and_fleiss() -> None:
    """
    Six targets and four judges: ICC(1,1) = 0.17 (Shrout and Fleiss 1979, tables 2 and 4).
    """
    ratings = [(9, 2, 5, 8), (6, 1, 3, 2), (8, 4, 6, 8), (7, 1, 2, 6), (10, 5, 6, 9), (6, 2, 4, 7)]
    found = intraclass(ratings)

    assert found is not None
    assert (6, 0.17) == (found.n, round(found.icc, 2))
    assert found.within == pytest.approx(6.26, abs=0.01)
    assert [round(one, 2) for one in found.interval] == [-0.13, 0.72]  # R's psych, pingouin


def test_intraclass_of_equal_scores() -> None:
    """
    Graders that agree are without noise; where nothing differs, there is nothing to tell.
    """
    agreed = intraclass([(1, 1), (2, 2), (3, 3)])

    assert agreed is not None
    assert (0.0, (0.0, 0.0)) == (agreed.noise, agreed.noise_interval)
    assert intraclass([(1, 1), (1, 1)]) is None
    assert intraclass([(1, 2)]) is None


def test_a_trend_is_scipys_regression() -> None:
    """
    Of twenty values each is its own window; where neighbors do not resemble each other, nothing is widened.
    """
    values = np.random.default_rng(2).normal(size=20) + np.linspace(0, 3, 20)
    found = trend_of(np.arange(20.0), values)
    places = np.linspace(0, 1, 20)
    line = stats.linregress(places, values)
    residuals = values - line.intercept - line.slope * places
    memory = max(0.0, float(residuals[1:] @ residuals[:-1] / (residuals @ residuals)))
    margin = stats.t.ppf(0.975, 18) * line.stderr * math.sqrt((1 + memory) / (1 - memory))

    assert found is not None
    assert (20, 20, "up") == (found.n, found.windows, found.direction)
    assert [found.change, *found.interval] == pytest.approx(
        [line.slope, line.slope - margin, line.slope + margin]
    )


def test_a_trend_of_ties_is_no_median_of_them() -> None:
    """
    A success rate that rises from .3 to .6 has a slope, and not exactly 0.
    """
    rng = np.random.default_rng(4)
    values = (rng.random(2_000) < 0.3 + 0.3 * np.arange(2_000) / 2_000).astype(float)
    found = trend_of(np.arange(2_000.0), values)

    assert found is not None
    assert "up" == found.direction
    assert found.change == pytest.approx(0.3, abs=0.1)


def test_a_step_is_a_trend() -> None:
    """
    By the rank test of the halves, which stands beside the slope.
    """
    found = trend_of(np.arange(400.0), np.repeat([0.0, 1.0], 200) + np.tile([0.0, 0.1], 200))

    assert found is not None
    assert ("up", True) == (found.direction, found.step_p < 0.001)
    assert found.step == pytest.approx(1.0)


def test_neighbors_that_resemble_each_other_widen_the_interval() -> None:
    """
    A wave on a plateau is no trend.
    """
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(60):
        noise, level = rng.normal(size=400), 0.0
        values = np.array([level := 0.9 * level + one for one in noise])
        found = trend_of(np.arange(400.0), values)
        wrong += found is not None and found.direction in ("up", "down")

    assert wrong <= 12


@pytest.mark.parametrize(
    ("values", "direction"),
    [
        (np.zeros(20), "flat"),
        (np.arange(20.0), "up"),
        (-np.arange(20.0), "down"),
        (np.tile([0.0, 1.0], 1_000), "flat"),
        (np.random.default_rng(3).normal(size=20), "unclear"),
    ],
)
def test_directions_of_trends(values: np.ndarray, direction: str) -> None:
    """
    Flat is an equivalence: few noisy values are unclear.
    """
    found = trend_of(np.arange(float(len(values))), values)

    assert found is not None
    assert direction == found.direction


def test_few_values_have_no_trend() -> None:
    """
    Nor have values that are no numbers.
    """
    assert trend_of(np.arange(7.0), np.arange(7.0)) is None
    assert trend_of(np.arange(20.0), np.full(20, math.nan)) is None


def test_windows_are_cut_at_updates() -> None:
    """
    Where there are enough of them; all windows together are all values.
    """
    phases = np.repeat(np.arange(10), 13)
    windows = split_windows(len(phases), phases)

    assert 10 == len(windows)
    assert all(1 == len(set(phases[window])) for window in windows)
    assert [*range(130)] == [*np.concatenate(split_windows(130))]


def test_shares_have_wilson_intervals() -> None:
    """
    0 of 20 is not none: up to 16 %.
    """
    share = share_of([False] * 20)

    assert (0.0, 0.0, 0.161) == (share.value, share.low, round(share.high, 3))
