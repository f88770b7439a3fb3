"""Statistics of numbers for reports; NaN and infinities are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mttp.model.estimates import INSTALL_SCIPY, t_interval

__all__ = [
    "INTERVAL",
    "SHARE_INTERVAL",
    "Figures",
    "Interval",
    "Window",
    "curve",
    "figures",
    "mean_interval",
    "share_interval",
    "windows",
]

INTERVAL = "Student t, 95 %"
"""Method of the interval of a mean."""
SHARE_INTERVAL = "Wilson, 95 %"
"""Method of the interval of a share."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of a set of numbers; None without numbers."""

    count: int
    """Number of finite numbers."""
    mean: float | None = None
    """Arithmetic mean."""
    min: float | None = None
    """Lowest number."""
    median: float | None = None
    """Median."""
    max: float | None = None
    """Highest number."""


def figures(values: NDArray[Any]) -> Figures:
    """Return the statistics of the finite numbers among `values`."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Figures(0)
    mean = math.fsum(known / len(known))
    return Figures(len(known), mean, *(float(of(known)) for of in (np.min, np.median, np.max)))


@dataclass(frozen=True, slots=True)
class Interval:
    """The 95 % interval of a mean, or the reason why there is none."""

    bounds: tuple[float, float] | None = None
    """Lower and upper bound; None without an interval."""
    method: str | None = None
    """Method, with the number of tasks if clustered by task."""
    reason: str | None = None
    """Why there is no interval."""


def mean_interval(values: NDArray[Any], tasks: Sequence[str]) -> Interval:
    """
    The 95 % interval for the mean of the numbers among `values`, one of a task each.

    It is Student's t interval, which takes them as independent.
    Where a task has several numbers it is clustered by task, with the factor C/(C-1) on the variance and C-1
    degrees of freedom, C being the number of tasks; a number without a task is a cluster of its own.
    """
    is_known = np.isfinite(values)
    known = values[is_known]
    named = [task or f"\0{row}" for row, task in enumerate(tasks) if is_known[row]]
    if len(known) < 2:
        return Interval(reason="fewer than two numbers")
    clusters = len(set(named))
    if clusters < 2:
        return Interval(reason="all numbers are of one task")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = known.mean()
        _, codes = np.unique(named, return_inverse=True)
        sums = np.bincount(codes, known - mean)
        error = np.sqrt((sums**2).sum() * clusters / (clusters - 1)) / len(known)
    bounds = t_interval(float(mean), float(error), clusters)
    if bounds is None:
        return Interval(reason=_why_none(float(error)))
    is_clustered = clusters < len(known)
    method = f"clustered by task, 95 %, {clusters:,} tasks" if is_clustered else INTERVAL
    return Interval(bounds, method)


def _why_none(error: float) -> str:
    """Return why a mean with that standard error has no interval."""
    if error == 0:
        return "too few numbers, all equal"
    try:
        import scipy.special  # noqa: F401 - whether it is there
    except ImportError:
        return f"scipy is not installed: {INSTALL_SCIPY}"
    return "the numbers are too large"


@dataclass(frozen=True, slots=True)
class Window:
    """The first or last episodes of a run, and the mean of their known numbers."""

    episodes: int
    """Number of episodes."""
    count: int
    """Number of episodes with a known number."""
    mean: float | None
    """Mean of the known numbers."""


def windows(values: NDArray[Any]) -> tuple[Window, Window] | None:
    """Return the first and the last fifth of `values`, at most 100 each; None for fewer than two."""
    size = min(-(-len(values) // 5), 100)
    if len(values) < 2:
        return None
    first, last = (figures(part) for part in (values[:size], values[-size:]))
    return Window(size, first.count, first.mean), Window(size, last.count, last.mean)


def share_interval(count: float, of: float) -> tuple[float, float] | None:
    """Return the 95 % Wilson interval of a share; None for n = 0."""
    if not of:
        return None
    z = NormalDist().inv_cdf(0.975)
    center = (count + z * z / 2) / (of + z * z)
    half = z * math.sqrt(count * (of - count) / of + z * z / 4) / (of + z * z)
    return max(center - half, 0.0), min(center + half, 1.0)


def curve(values: NDArray[Any], *, points: int = 60) -> list[float | None]:
    """Return the mean of `values` in each of at most `points` windows; None for a window without a number."""
    if not len(values):
        return []
    stretches = np.array_split(values, min(points, len(values)))
    return [figures(stretch).mean for stretch in stretches]
