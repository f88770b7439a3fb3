"""The figures that a report states about numbers; NaN and the infinities are none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INTERVAL", "SHARE_INTERVAL", "Figures", "curve", "figures", "share_interval", "t_interval"]

INTERVAL = "Student t, 95 %"
"""How an interval for a mean is computed."""
SHARE_INTERVAL = "Wilson, 95 %"
"""How an interval for a share is computed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a set of numbers amounts to; None where there are none."""

    count: int
    """How many there are."""
    mean: float | None = None
    """Their mean."""
    min: float | None = None
    """The lowest."""
    median: float | None = None
    """The one in the middle."""
    max: float | None = None
    """The highest."""


def figures(values: NDArray[Any]) -> Figures:
    """The figures of the numbers among `values`."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Figures(0)
    mean = math.fsum(known / len(known))
    return Figures(len(known), mean, *(float(of(known)) for of in (np.min, np.median, np.max)))


def t_interval(values: NDArray[Any]) -> tuple[float, float] | None:
    """
    The 95 % interval for the mean, by Student's t.

    None for fewer than two numbers, and where scipy is not installed. It takes episodes as independent.
    """
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return None
    try:
        from scipy.special import stdtrit  # scipy.stats takes three times as long to import
    except ImportError:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        half = stdtrit(len(known) - 1, 0.975) * known.std(ddof=1) / np.sqrt(len(known))
        mean = known.mean()
    return (float(mean - half), float(mean + half)) if np.isfinite(half) and np.isfinite(mean) else None


def share_interval(count: int, of: int) -> tuple[float, float] | None:
    """The 95 % interval for a share, by Wilson; None of nothing."""
    if not of:
        return None
    z = NormalDist().inv_cdf(0.975)
    center = (count + z * z / 2) / (of + z * z)
    half = z * math.sqrt(count * (of - count) / of + z * z / 4) / (of + z * z)
    return max(center - half, 0.0), min(center + half, 1.0)


def curve(values: NDArray[Any], *, points: int = 60) -> list[float | None]:
    """The mean of `values` in each of at most `points` stretches; None where one has no number."""
    if not len(values):
        return []
    stretches = np.array_split(values, min(points, len(values)))
    return [figures(stretch).mean for stretch in stretches]
