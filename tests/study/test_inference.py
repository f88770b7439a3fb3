"""Effects, intervals and p values, against published figures and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mttp.model.statistics.inference import (
    interquartile_mean,
    of_runs,
    paired,
    probability_of_improvement,
    tango_interval,
    unpaired,
)


def outcomes(passed: int, count: int) -> list[float]:
    return [1.0] * passed + [0.0] * (count - passed)


def test_mcnemar_as_published() -> None:
    """
    Approval of a prime minister, asked twice (Agresti, Categorical Data Analysis, table 10.1).
    """
    base = outcomes(794, 794) + outcomes(150, 150) + outcomes(0, 86) + outcomes(0, 570)
    candidate = outcomes(794, 794) + outcomes(0, 150) + outcomes(86, 86) + outcomes(0, 570)

    found = paired(base, candidate)

    assert pytest.approx(-64 / 1600) == found.effect
    assert found.p_value == pytest.approx(3.716e-05, rel=1e-3)
    assert found.interval is not None
    assert found.interval[0] < -0.04 < found.interval[1] < 0


def test_difference_of_proportions_as_published() -> None:
    """
    56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, table II, method 10).
    """
    found = unpaired(outcomes(48, 80), outcomes(56, 70))

    assert found.interval is not None
    assert (0.0524, 0.3339) == tuple(round(side, 4) for side in found.interval)


def test_paired_t_is_that_of_scipy() -> None:
    """
    Interval and p value, for more pairs than are permuted.
    """
    random = np.random.default_rng(1)
    base = random.normal(size=30)
    candidate = base + random.normal(0.3, 1, size=30)
    found, expected = paired(base, candidate), stats.ttest_rel(candidate, base)
    interval = expected.confidence_interval(0.95)

    assert pytest.approx(expected.pvalue) == found.p_value
    assert pytest.approx((interval.low, interval.high)) == found.interval


def test_few_pairs_are_permuted_as_by_scipy() -> None:
    """
    All assignments of signs.
    """
    random = np.random.default_rng(2)
    base, candidate = random.normal(size=9), random.normal(0.8, 1, size=9)
    expected = stats.permutation_test(
        (candidate, base),
        lambda one, other: np.mean(one - other),
        permutation_type="samples",
        vectorized=False,
        n_resamples=math.inf,
    )

    assert pytest.approx(expected.pvalue) == paired(base, candidate).p_value


def test_welch_is_that_of_scipy() -> None:
    """
    With samples of different sizes and spreads, of 30 values or more.
    """
    random = np.random.default_rng(3)
    base, candidate = random.normal(size=32), random.normal(1, 3, size=45)
    found = unpaired(base, candidate)
    expected = stats.ttest_ind(candidate, base, equal_var=False)
    interval = expected.confidence_interval(0.95)

    assert pytest.approx(expected.pvalue) == found.p_value
    assert pytest.approx((interval.low, interval.high)) == found.interval


def test_the_detectable_effect_is_detected_with_that_power() -> None:
    """
    Of 400 samples with exactly that effect, about 80 % are significant.
    """
    random = np.random.default_rng(4)
    detectable = 2.8 / math.sqrt(40)  # roughly (t(0.975) + t(0.8)) / sqrt(n) for a standard deviation of 1
    hits = sum(
        (found := paired(np.zeros(40), random.normal(detectable, 1, size=40))).p_value is not None
        and found.p_value <= 0.05
        for _ in range(400)
    )

    assert 0.74 < hits / 400 < 0.86


@pytest.mark.parametrize(
    ("base", "candidate"),
    [([1.0], [2.0]), ([], []), ([0.5] * 50, [0.7] * 50)],
    ids=["one", "none", "equal"],
)
def test_too_little_gives_no_interval(base: list[float], candidate: list[float]) -> None:
    """
    Neither one pair nor equal differences of an unknown range support one.
    """
    found = paired(base, candidate)

    assert (None, None) == (found.interval, found.detectable)


def test_tango_as_published() -> None:
    """
    Crossover trial of 14 pairs, 32 and 12: 0.061 to 0.345; 5 gained of 12: 0.073 to 0.680 (Tango 1998).
    """
    assert tango_interval(12, 2, 50, 0.95) == pytest.approx((0.0611, 0.3447), abs=1e-4)
    assert tango_interval(5, 0, 12, 0.95) == pytest.approx((0.0731, 0.6805), abs=1e-4)
    ends = [tango_interval(0, lost, 40, 0.9)[0] for lost in range(41)]
    assert ends == sorted(ends, reverse=True)


def test_equal_differences_are_bounded_by_their_range() -> None:
    """
    Fifty differences of 0 on a scale from 0 to 10: another one has a share of at most 1 - 0.025 ** (1 / 50).
    """
    same = [3.0] * 50
    found = paired(same, same, span=(0.0, 10.0))
    width = 10 * (1 - 0.025 ** (1 / 50))

    assert found.interval == pytest.approx((-width, width))
    assert paired(same, [4.0] * 50).p_value == pytest.approx(2 * 0.5**50)


def test_nothing_is_detectable_with_five_pairs() -> None:
    """
    The least p value of five pairs is 1/16.
    """
    assert paired([0.1, 0.2, 0.3, 0.4, 0.5], [9.2, 9.1, 9.5, 9.3, 9.4]).detectable is None


def test_no_event_is_not_no_risk() -> None:
    """
    Of 100 pairs that all pass, 3.7 % may still differ by Tango's interval.
    """
    found = paired([1.0] * 100, [1.0] * 100, span=(0.0, 1.0))

    assert found.interval == pytest.approx((-0.0370, 0.0370), abs=1e-4)
    assert 1.0 == found.p_value


def test_one_run_a_side_has_no_interval() -> None:
    """
    The variance between runs is unknown; of one against several it is that of the several.
    """
    assert of_runs([1.0], [9.0]).interval is None
    one_against_two = of_runs([1.0], [9.0, 8.0])
    assert one_against_two.p_value == pytest.approx(
        2 * stats.t.sf(7.5 / (np.std([9, 8], ddof=1) * math.sqrt(1.5)), 1)
    )
    assert of_runs([1.0, 2.0], [9.0, 8.0]).interval is not None


def test_aggregates_of_runs() -> None:
    """
    The interquartile mean drops two of eight at each end; a tie is half an improvement.
    """
    assert 3.5 == interquartile_mean(np.array([1.0, 2, 3, 4, 5, 6, 100, -100]))
    assert 0.875 == probability_of_improvement(np.array([1.0, 2.0]), np.array([2.0, 3.0]))


@pytest.mark.long
@pytest.mark.parametrize(
    "draw",
    [
        lambda random: paired(random.normal(size=40), random.normal(size=40)),
        lambda random: paired(random.normal(size=6), random.normal(size=6)),
        lambda random: paired(random.standard_t(2, size=12), random.standard_t(2, size=12)),
        lambda random: paired(1.0 * (random.random(50) < 0.4), 1.0 * (random.random(50) < 0.4)),
        lambda random: unpaired(1.0 * (random.random(40) < 0.1), 1.0 * (random.random(40) < 0.1)),
        lambda random: unpaired(random.standard_t(2, size=30), random.standard_t(2, size=20)),
        lambda random: of_runs([*random.normal(size=5)], [*random.normal(size=5)]),
    ],
    ids=["paired", "few clusters", "heavy tails", "McNemar", "rare outcomes", "Welch, heavy", "runs"],
)
def test_without_an_effect_each_direction_is_found_at_most_at_its_rate(draw: object) -> None:
    """
    Of 2,000 draws at most 2.5 % are `better`, give or take three standard errors.
    """
    random = np.random.default_rng(5)
    found = [draw(random) for _ in range(2_000)]  # type: ignore[operator]
    better = sum(one.p_value is not None and one.p_value <= 0.05 and one.effect > 0 for one in found) / 2_000

    assert better <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 2_000)
