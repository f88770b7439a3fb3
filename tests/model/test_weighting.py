"""Estimates of a run from a sample with known shares."""

from __future__ import annotations

import itertools
import math

import pytest

from mttp.model.weighting import METHOD, WeightedMean, weighted_mean, weighting

NAN = math.nan


def test_a_mean_counts_each_value_for_those_like_it():
    """
    Two failures that are all kept and one of four successes stand for six values.
    """
    expected = WeightedMean(mean=4 / 6, count=3, stands_for=6.0, effective=36 / 18)
    actual = weighted_mean([0.0, 0.0, 1.0, NAN], [1.0, 1.0, 0.25, 0.25])

    assert actual is not None
    for field in ("mean", "count", "stands_for", "effective"):
        assert getattr(expected, field) == pytest.approx(getattr(actual, field), rel=1e-12)


def test_equal_shares_change_neither_mean_nor_effective_size():
    """
    They only say how many values the run has.
    """
    actual = weighted_mean([1.0, 2.0, 6.0], [0.1] * 3)

    assert actual is not None
    assert (3.0, 3, 30.0, 3.0) == pytest.approx(
        (actual.mean, actual.count, actual.stands_for, actual.effective)
    )
    assert None is weighted_mean([NAN], [0.5])


def test_over_all_samples_the_estimates_are_those_of_the_run():
    """
    The number of episodes exactly, by Horvitz and Thompson; and of the totals whose ratio the mean is.
    """
    values, shares = [0.0, 1.0, 5.0, 2.0], [1.0, 0.5, 0.2, 0.7]
    count = total = 0.0
    for kept in itertools.product((False, True), repeat=4):
        chance = math.prod(share if keep else 1 - share for share, keep in zip(shares, kept, strict=True))
        pairs = [pair for pair, keep in zip(zip(values, shares, strict=True), kept, strict=True) if keep]
        found = weighted_mean(*zip(*pairs, strict=True)) if chance else None
        if found is not None:
            count += chance * found.stands_for
            total += chance * found.stands_for * found.mean

    assert (4.0, 8.0) == pytest.approx((count, total))


def test_what_is_no_sample_is_not_weighted():
    """
    Nothing says that it is one, be it because no share is known or because all were kept.
    """
    assert None is weighting([NAN, NAN], [1.0, 0.0], [1.0, 0.0], is_sample=False)
    assert None is weighting([1.0, 1.0], [1.0, 0.0], [1.0, 0.0], is_sample=False)


def test_an_unknown_share_leaves_all_unweighted_and_says_so():
    """
    As of a sampler that keeps failures, and some of the others, without saying which.
    """
    found = weighting([1.0, NAN, NAN], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], is_sample=True)

    assert found is not None
    assert (None, None, None) == (found.return_, found.success, found.method)
    assert "not weighted: the sampling share of 2 of 3 episodes is unknown" == str(found)


def test_a_weighting_says_how_much_it_rests_on():
    """
    In one line, with its method as a field.
    """
    found = weighting([1.0, 0.05], [0.0, 1.0], [NAN, NAN], is_sample=True)

    assert found is not None
    assert "by 1/share: mean return 0.9524 (2 stand for 21, effective 1)" == str(found)
    assert METHOD == found.method
