"""
Mean and standard deviation of a group's rewards, and the advantages of its members.

A reward that is not a finite number does not count, and its member's advantage is NaN.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["EPSILON", "advantages", "mean", "std", "valid"]

EPSILON = 1e-4
"""Added to the standard deviation before dividing by it, as TRL does; verl adds 1e-6."""


def valid(rewards: Sequence[float]) -> list[float]:
    """Return the finite rewards."""
    return [reward for reward in rewards if math.isfinite(reward)]


def mean(rewards: Sequence[float]) -> float | None:
    """Return the mean of the finite rewards, rounded once; None without any."""
    known = valid(rewards)
    return statistics.mean(known) if known else None


def std(rewards: Sequence[float], ddof: int = 1) -> float | None:
    """
    Return the standard deviation of the finite rewards, with `ddof` (0 or 1) subtracted from their count.

    Equal rewards give exactly zero. None for `ddof` rewards or fewer, and if the result overflows a float.
    """
    known = valid(rewards)
    if len(known) <= ddof:
        return None
    try:
        return statistics.stdev(known) if ddof else statistics.pstdev(known)
    except OverflowError:  # the variance of finite numbers can overflow
        return None


def advantages(
    rewards: Sequence[float], normalization: str | None, *, mean: float | None, std: float | None
) -> tuple[float, ...]:
    """
    Return the advantage of each member, NaN without a finite reward; empty for an unknown `normalization`.

    none           r
    mean           r - mean                     Dr. GRPO (Liu et al. 2025, arXiv:2503.20783)
    mean_std       (r - mean) / (std + 1e-4)    GRPO (Shao et al. 2024, arXiv:2402.03300)
    leave_one_out  r - mean of the others       RLOO (Ahmadian et al. 2024, arXiv:2402.14740)
    """
    count = len(valid(rewards))
    if normalization == "none":
        scale, shift = 1.0, 0.0
    elif normalization == "mean":
        scale, shift = 1.0, _or_nan(mean)
    elif normalization == "mean_std":
        scale, shift = 1 / (_or_nan(std) + EPSILON), _or_nan(mean)
    elif normalization == "leave_one_out":
        # r - (sum - r) / (n - 1) is (r - mean) * n / (n - 1)
        scale, shift = count / (count - 1) if count > 1 else math.nan, _or_nan(mean)
    else:
        return ()
    return tuple((reward - shift) * scale if math.isfinite(reward) else math.nan for reward in rewards)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
