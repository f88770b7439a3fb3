"""Estimates of one sample with one-sided confidence bounds: means, shares, percentiles, ratios of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mttp.model.statistics.inference import IF_OUTCOMES, OUTCOMES, Floats, ValueRange, scipy_stats

_LEAST_RATIO = 10
"""The least number of values of a ratio's bound: the logarithm of fewer is far from normal."""
_FEW_CLUSTERS = 30
"""Below this number of clusters their variance, and with it the bound of a share, is rough."""
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
    is_conditional: bool = False
    """Whether the bounds hold only if no other values than 0 and 1 are possible."""


def mean_bounds(
    clusters: Sequence[Sequence[float]] | Sequence[Floats],
    confidence: float,
    *,
    span: ValueRange | None = None,
) -> BoundedEstimate:
    """
    Return the mean over independent clusters of the mean of each one's values.

    `span` is the range of the values, where it is known.
    Values that are all 0 or 1: Wilson's bounds for the number of independent values, see `share_bounds`.
    Others: Student's t over the clusters' means; none for fewer than two.
    Means that are all equal have bounds only where the span bounds how far others may lie: a value that was
    not seen in n clusters has a share of at most 1 - alpha^(1/n).
    """
    means = np.array([float(np.mean(values)) for values in clusters])
    count, value = len(means), float(np.mean(means))
    if count < 2:
        return _unbounded(value, count, "too few values")
    values = np.concatenate([np.asarray(values, dtype=float) for values in clusters])
    if bool(np.isin(values, OUTCOMES).all()):
        independent = _independent(means, len(values), confidence)
        low, high = _wilson(value, independent, confidence)
        method = _of_independent("Wilson", independent, count, len(values))
        return BoundedEstimate(
            value=value,
            low=low,
            high=high,
            n=count,
            method=method if span == OUTCOMES else f"{method}, {IF_OUTCOMES}",
            is_conditional=span != OUTCOMES,
        )
    error = float(np.std(means, ddof=1)) / math.sqrt(count)
    if error > _EQUAL * float(np.abs(values).max()):
        half = float(scipy_stats().t.ppf(confidence, count - 1)) * error
        return BoundedEstimate(
            value=value, low=value - half, high=value + half, n=count, method="Student's t"
        )
    if span is None:
        return _unbounded(value, count, "all values are equal, and their range is not known")
    share = 1 - (1 - confidence) ** (1 / count)
    low, high = value - share * (value - span[0]), value + share * (span[1] - value)
    return BoundedEstimate(value=value, low=low, high=high, n=count, method="equal values within their range")


def share_bounds(clusters: Sequence[tuple[int, int]], confidence: float) -> BoundedEstimate:
    """
    Return the share of counted episodes, from each independent cluster's count and its number of episodes.

    Clopper-Pearson's bounds; without any the upper bound is 1 - alpha^(1/n).
    Several episodes of a task are not independent: n is divided by the design effect, and at most the number
    of tasks where all of them agree (Korn and Graubard 1998).
    """
    count, total = (sum(numbers) for numbers in zip(*clusters, strict=True))
    share = count / total
    means, sizes = (
        np.array([counted / of for counted, of in clusters]),
        np.array([of for _, of in clusters], dtype=float),
    )
    independent = _independent(means, total, confidence, weights=sizes)
    beta, events = scipy_stats().beta, share * independent
    low = 0.0 if not count else float(beta.ppf(1 - confidence, events, independent - events + 1))
    high = 1.0 if count == total else float(beta.ppf(confidence, events + 1, independent - events))
    method = _of_independent("Clopper-Pearson", independent, len(clusters), total)
    return BoundedEstimate(value=share, low=low, high=high, n=total, method=method)


def _of_independent(method: str, independent: float, clusters: int, total: int) -> str:
    """Return the method with how many episodes are independent, and its limits."""
    if clusters == total:
        return method
    limits = ", rough for few tasks" if clusters < _FEW_CLUSTERS else ""
    return f"{method} for {independent:,.4g} independent of {total:,} in {clusters:,} clusters{limits}"


def _independent(means: Floats, total: int, confidence: float, *, weights: Floats | None = None) -> float:
    """
    Return the number of independent episodes that are as exact as `total` episodes in clusters.

    The variance of the clusters' means against that of single episodes, at most the number of episodes;
    the number of clusters where none or all count, whose variance can't be seen.
    """
    clusters = len(means)
    if clusters == total:
        return float(total)
    shares = np.full(clusters, 1 / clusters) if weights is None else weights / weights.sum()
    share = float(shares @ means)
    if clusters < 2 or not _EQUAL < share < 1 - _EQUAL:
        return float(clusters)
    variance = float((shares**2 * (means - share) ** 2).sum()) * clusters / (clusters - 1)
    quantile = scipy_stats().t.ppf
    wider = float(quantile(confidence, clusters - 1) / quantile(confidence, total - 1))
    independent = share * (1 - share) / variance / wider**2 if variance > 0 else math.inf
    return min(max(independent, 1.0), float(total))


def _wilson(share: float, n: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's bounds of a share of n independent values, which need not be a whole number."""
    z = float(scipy_stats().norm.ppf(confidence))
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = max(center - half, 0.0) if share > 0 else 0.0
    return low, min(center + half, 1.0) if share < 1 else 1.0


def least_passes(share: float, confidence: float) -> int | None:
    """
    Return the least number of passes, without a failure, whose lower bound by Wilson is above a share.

    It is also the least number of pairs, without a difference, that shows a loss below `1 - share` by Tango.
    None for a share that no number reaches.
    """
    if not 0 < share < 1:
        return None
    z = float(scipy_stats().norm.ppf(confidence))
    return math.floor(z * z * share / (1 - share)) + 1


def _unbounded(value: float, count: int, reason: str) -> BoundedEstimate:
    return BoundedEstimate(value=value, low=None, high=None, n=count, method=f"no bound: {reason}")


def percentile_bounds(
    values: Sequence[float] | Floats, percentile: float, confidence: float
) -> BoundedEstimate:
    """
    Return a percentile, see `quantile`; its bounds are order statistics (Conover 1999, section 3.2).

    They assume no distribution. The upper bound of the 95th percentile needs 59 values at 95 % confidence.
    Infinite values are possible: they are those that are missing.
    """
    ordered, share = np.sort(np.asarray(values, dtype=float)), percentile / 100
    n, binom = len(ordered), scipy_stats().binom
    below = int(
        binom.ppf(1 - confidence, n, share)
    )  # P(fewer than `below` values are lower) <= 1 - confidence
    above = int(binom.ppf(confidence, n, share)) + 1
    needed = math.ceil(math.log(1 - confidence) / math.log(share))
    short = f"; an upper bound needs {needed:,} values" if above > n else ""
    return BoundedEstimate(
        value=quantile(ordered, share),
        low=float(ordered[below - 1]) if below >= 1 else None,
        high=float(ordered[above - 1]) if above <= n else None,
        n=n,
        method=f"order statistics of {n:,} values{short}",
    )


def quantile(values: Floats, share: float) -> float:
    """Return a quantile by linear interpolation; the next value above it where some are infinite."""
    method = "linear" if bool(np.isfinite(values).all()) else "higher"
    return float(np.quantile(values, share, method=method))  # type: ignore[call-overload]  # of NumPy's stubs


def ratio_bounds(
    base: Sequence[float] | Floats, candidate: Sequence[float] | Floats, confidence: float, *, paired: bool
) -> BoundedEstimate:
    """
    Return the ratio of two means with bounds by Student's t of its logarithm (delta method).

    None for fewer than ten values on a side. Raises ValueError where the mean of the base is not above 0.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    n, center = min(len(before), len(after)), float(np.mean(before))
    if center <= 0:
        raise ValueError("the mean of the base is not above 0")
    value = float(np.mean(after)) / center
    if n < _LEAST_RATIO:
        return _unbounded(value, n, f"a ratio needs {_LEAST_RATIO} values on each side")
    if value <= 0:
        return _unbounded(value, n, "the mean of the candidate is not above 0")
    first, second = before / center, after / float(np.mean(after))
    if paired:
        error = float(np.std(second - first, ddof=1)) / math.sqrt(n)
    else:
        error = math.hypot(*(float(np.std(side, ddof=1)) / math.sqrt(len(side)) for side in (first, second)))
    if error <= _EQUAL:
        return _unbounded(value, n, "all ratios are equal")
    factor = math.exp(float(scipy_stats().t.ppf(confidence, n - 1)) * error)
    return BoundedEstimate(
        value=value, low=value / factor, high=value * factor, n=n, method="Student's t of the log ratio"
    )
