"""The figures that a report states about numbers; NaN and the infinities are none."""

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


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval for a mean, or the reason why there is none."""

    bounds: tuple[float, float] | None = None
    """Its lower and upper end; None where there is none."""
    method: str | None = None
    """How it was computed, and over how many tasks where it is clustered by them."""
    reason: str | None = None
    """Why there is none."""


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
    """Why there is no interval for a mean with that standard error."""
    if error == 0:
        return "too few numbers, all equal"
    try:
        import scipy.special  # noqa: F401 - whether it is there
    except ImportError:
        return f"scipy is not installed: {INSTALL_SCIPY}"
    return "the numbers are too large"


@dataclass(frozen=True, slots=True)
class Window:
    """Episodes at one end of a run, and the mean over those whose number is known."""

    episodes: int
    """How many episodes it takes."""
    count: int
    """How many of them have a number that is known."""
    mean: float | None
    """The mean of these numbers."""


def windows(values: NDArray[Any]) -> tuple[Window, Window] | None:
    """The first and the last fifth of `values`, at most 100 each; None of fewer than two."""
    size = min(-(-len(values) // 5), 100)
    if len(values) < 2:
        return None
    first, last = (figures(part) for part in (values[:size], values[-size:]))
    return Window(size, first.count, first.mean), Window(size, last.count, last.mean)


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
