"""Estimates of one sample with one-sided confidence bounds: means, shares, percentiles, ratios of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mttp.model.estimates import FEWEST_EQUAL
from mttp.study.inference import Floats, scipy_stats

__all__ = ["BoundedEstimate", "mean_bounds", "percentile_bounds", "ratio_bounds", "share_bounds"]

_RESAMPLES = 2_000
_SEED = 0
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedEstimate:
    """An estimate with its lower and its upper bound, each one-sided."""

    value: float
    low: float | None
    """None where the data support no bound."""
    high: float | None
    n: int
    """Values that it is of."""
    method: str


def mean_bounds(
    values: Sequence[float] | Floats, confidence: float, *, binary: bool = False
) -> BoundedEstimate:
    """
    The mean of independent values, one per cluster.

    Passes and failures: Wilson's bounds. Others: Student's t; none for fewer than two values, and for fewer
    than six that are all equal.
    """
    found = np.asarray(values, dtype=float)
    n, value = len(found), float(np.mean(found))
    if binary and set(np.unique(found)) <= {0.0, 1.0}:
        interval = scipy_stats().binomtest(int(found.sum()), n).proportion_ci(2 * confidence - 1, "wilson")
        return BoundedEstimate(value=value, low=interval.low, high=interval.high, n=n, method="Wilson")
    error = float(np.std(found, ddof=1)) / math.sqrt(n) if n >= 2 else None
    if error is None or (error <= _EQUAL * abs(value) and n < FEWEST_EQUAL):
        return BoundedEstimate(value=value, low=None, high=None, n=n, method="no bound: too few values")
    if binary and error == 0 and value in (0.0, 1.0):
        return share_bounds(int(value * n), n, confidence)
    half = float(scipy_stats().t.ppf(confidence, n - 1)) * error
    return BoundedEstimate(value=value, low=value - half, high=value + half, n=n, method="Student's t")


def share_bounds(count: int, n: int, confidence: float) -> BoundedEstimate:
    """The share of `count` among n episodes: Clopper-Pearson; of 0 the upper bound is 1 - alpha^(1/n)."""
    beta = scipy_stats().beta
    low = 0.0 if count == 0 else float(beta.ppf(1 - confidence, count, n - count + 1))
    high = 1.0 if count == n else float(beta.ppf(confidence, count + 1, n - count))
    return BoundedEstimate(value=count / n, low=low, high=high, n=n, method="Clopper-Pearson")


def percentile_bounds(
    values: Sequence[float] | Floats, percentile: float, confidence: float
) -> BoundedEstimate:
    """
    A percentile by linear interpolation; its bounds are order statistics (Conover 1999, section 3.2).

    They assume no distribution. The upper bound of the 95th percentile needs 59 values at 95 % confidence.
    """
    found, share = np.sort(np.asarray(values, dtype=float)), percentile / 100
    n, binom = len(found), scipy_stats().binom
    below = int(
        binom.ppf(1 - confidence, n, share)
    )  # P(fewer than `below` values are lower) <= 1 - confidence
    above = int(binom.ppf(confidence, n, share)) + 1
    needed = math.ceil(math.log(1 - confidence) / math.log(share))
    short = f"; an upper bound needs {needed:,} values" if above > n else ""
    return BoundedEstimate(
        value=float(np.quantile(found, share)),
        low=float(found[below - 1]) if below >= 1 else None,
        high=float(found[above - 1]) if above <= n else None,
        n=n,
        method=f"order statistics of {n:,} values{short}",
    )


def ratio_bounds(
    base: Sequence[float] | Floats, candidate: Sequence[float] | Floats, confidence: float, *, paired: bool
) -> BoundedEstimate:
    """The ratio of two means; its bounds are percentiles of a bootstrap with 2,000 resamples."""
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    n, center = min(len(before), len(after)), float(np.mean(before))
    if center <= 0:
        raise ValueError("the mean of the base is not above 0")
    value = float(np.mean(after)) / center
    if n < 2:
        return BoundedEstimate(value=value, low=None, high=None, n=n, method="no bound: too few values")
    rng = np.random.default_rng(_SEED)
    found = np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        first = rng.integers(len(before), size=len(before))
        second = first if paired else rng.integers(len(after), size=len(after))
        below = before[first].mean()
        found[place] = after[second].mean() / below if below > 0 else math.inf
    low, high = np.quantile(found, [1 - confidence, confidence])
    return BoundedEstimate(
        value=value, low=float(low), high=float(high), n=n, method="bootstrap of 2,000 resamples"
    )
