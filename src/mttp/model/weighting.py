"""Means of a run from a sample of its episodes, each kept with a known share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["METHOD", "WeightedMean", "Weighting", "weighted_mean", "weighting"]

METHOD = "Hájek mean with weights 1/share; Horvitz-Thompson number of episodes; Kish effective size"
"""How the means of a `Weighting` are computed."""


@dataclass(frozen=True, slots=True)
class WeightedMean:
    """A mean over the values that are known."""

    mean: float
    """Sum of value/share by sum of 1/share (Hájek 1971)."""
    count: int
    """Number of values."""
    stands_for: float
    """Sum of 1/share: how many values the whole run has, as estimated by Horvitz and Thompson (1952)."""
    effective: float
    """Number of values in a sample with equal shares that is as precise (Kish 1965)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """What a sample says about its run; without means if shares are unknown."""

    reason: str | None = None
    """Why there are no means."""
    method: str | None = None
    return_: WeightedMean | None = None
    """Of the returns."""
    success: WeightedMean | None = None
    """Of the outcomes, 1 for a success and 0 for a failure."""

    def __str__(self) -> str:
        if self.reason is not None:
            return f"not weighted: {self.reason}"
        means = [("mean return", self.return_), ("success", self.success)]
        known = [(name, estimate) for name, estimate in means if estimate is not None]
        texts = [
            f"{name} {estimate.mean:.4g} ({estimate.count:,} stand for {estimate.stands_for:,.0f}, "
            f"effective {estimate.effective:,.0f})"
            for name, estimate in known
        ]
        return f"by 1/share: {'; '.join(texts)}" if texts else "by 1/share: no return or outcome is known"


def weighted_mean(values: Iterable[float], shares: Iterable[float]) -> WeightedMean | None:
    """Return the mean of the finite values, by the share with which each was kept; None without any."""
    pairs = [(value, 1 / share) for value, share in zip(values, shares, strict=True) if math.isfinite(value)]
    if not pairs:
        return None
    total = math.fsum(weight for _, weight in pairs)
    return WeightedMean(
        mean=math.fsum(value * (weight / total) for value, weight in pairs),
        count=len(pairs),
        stands_for=total,
        effective=1 / math.fsum((weight / total) ** 2 for _, weight in pairs),
    )


def weighting(
    shares: Sequence[float], returns: Iterable[float], successes: Iterable[float], *, is_sample: bool
) -> Weighting | None:
    """
    Return what episodes with these shares say about their run; NaN is an unknown share or value.

    None for episodes that are no sample: `is_sample` is not known from elsewhere, and no share is below 1.
    """
    if not is_sample and not any(share < 1 for share in shares):
        return None
    unknown = sum(map(math.isnan, shares))
    if unknown:
        which = f"{unknown:,} of {len(shares):,} episode{'' if len(shares) == 1 else 's'}"
        return Weighting(reason=f"the sampling share of {which} is unknown")
    return Weighting(
        method=METHOD, return_=weighted_mean(returns, shares), success=weighted_mean(successes, shares)
    )
