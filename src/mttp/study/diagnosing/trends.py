"""Trends over training time, shares and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.model.statistics.inference import scipy_stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

FEWEST = 8
"""Values that a trend needs: a slope of fewer has an interval too wide to say anything."""
WINDOWS = 20
"""Windows of training time: enough for the slope, and few enough that one averages noise and ties away."""
SMALL = 0.2
"""The least change over the run, in standard deviations, that counts: Cohen's small effect."""
FLAT = 0.5
"""A trend is flat if its interval is within this many standard deviations: Cohen's medium effect."""
STEP = 1.0
"""A difference of the halves of this many standard deviations is a trend by itself."""
STEP_ALPHA = 0.01
MEMORY = 0.9
"""The largest autocorrelation of windows that widens an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTrend:
    """A least-squares slope over windows of training time, as the change from the first value to the last."""

    change: float
    interval: tuple[float, float]
    """The 95 % interval of the change by t, widened where neighboring windows resemble each other."""
    first: float
    """Mean of the first quarter of the windows."""
    last: float
    """Mean of the last quarter of the windows."""
    step: float
    """Mean of the last half less that of the first."""
    step_p: float
    """The p value of the halves being equal: Mann-Whitney test of the windows."""
    spread: float
    """Standard deviation of the values around the line."""
    n: int
    windows: int

    @property
    def direction(self) -> str:
        """up and down where slope or step exclude zero and are not small; flat; else unclear."""
        low, high = self.interval
        excludes_zero = min(abs(low), abs(high)) > 0 and (low > 0) == (high > 0)
        if excludes_zero and abs(self.scaled(self.change)) >= SMALL:
            return "up" if low > 0 else "down"
        if self.step_p <= STEP_ALPHA and abs(self.scaled(self.step)) >= STEP:
            return "up" if self.step > 0 else "down"
        is_level = max(abs(self.scaled(low)), abs(self.scaled(high))) <= FLAT
        return "flat" if is_level else "unclear"

    def scaled(self, change: float) -> float:
        """A change in standard deviations of the values around the line."""
        if change == 0:
            return 0.0
        return change / self.spread if self.spread else math.copysign(math.inf, change)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.direction} by {self.change:+.3g} [{low:+.3g}, {high:+.3g}] "
            f"(least squares, 95 %, n={self.n:,} in {self.windows} windows; halves {self.step:+.3g}, "
            f"p={self.step_p:.2g})"
        )


def trend_of(times: Floats, values: Floats, phases: NDArray[np.int64] | None = None) -> TimeTrend | None:
    """
    The trend of finite values over training time; None for fewer than `FEWEST` of them.

    `times` ascend; the windows are of equal size, cut where the policy was updated if `phases`, the number
    of updates before each value, has enough of them.
    """
    known = np.isfinite(values)
    times, values = times[known], values[known]
    if len(values) < FEWEST:
        return None
    windows = split_windows(len(values), None if phases is None else phases[known])
    span = float(times[-1] - times[0]) or 1.0
    places = np.array([times[window].mean() for window in windows]) / span
    means = np.array([values[window].mean() for window in windows])
    slope, intercept, margin = _least_squares(places, means)
    quarter, half = max(1, len(means) // 4), len(means) // 2
    early, late = means[:half], means[len(means) - half :]
    return TimeTrend(
        change=slope,
        interval=(slope - margin, slope + margin),
        first=float(means[:quarter].mean()),
        last=float(means[-quarter:].mean()),
        step=float(late.mean() - early.mean()),
        step_p=float(scipy_stats().mannwhitneyu(early, late).pvalue) if np.ptp(means) else 1.0,
        spread=float((values - (intercept + slope * times / span)).std(ddof=1)),
        n=len(values),
        windows=len(means),
    )


def _least_squares(places: Floats, means: Floats) -> tuple[float, float, float]:
    """Slope, intercept, and half the width of the slope's 95 % interval."""
    if not np.ptp(means):
        return 0.0, float(means[0]), 0.0
    centered = places - places.mean()
    slope = float(centered @ means) / float(centered @ centered)
    residuals = means - means.mean() - slope * centered
    squares = float(residuals @ residuals)
    memory = float(residuals[1:] @ residuals[:-1]) / squares if squares else 0.0
    memory = min(max(memory, 0.0), MEMORY)
    error = math.sqrt(squares / (len(means) - 2) / float(centered @ centered) * (1 + memory) / (1 - memory))
    margin = float(scipy_stats().t.ppf(0.975, len(means) - 2)) * error
    return slope, float(means.mean() - slope * places.mean()), margin


def split_windows(count: int, phases: NDArray[np.int64] | None = None) -> list[NDArray[np.int64]]:
    """Positions of up to `WINDOWS` windows of equal size, cut between updates where there are enough."""
    number = min(WINDOWS, count)
    cuts = np.linspace(0, count, number + 1).round().astype(int)[1:-1]
    if phases is not None:
        changes = np.flatnonzero(np.diff(phases)) + 1
        if len(changes) >= FEWEST - 1:
            snapped = np.unique(changes[np.abs(changes[None, :] - cuts[:, None]).argmin(axis=1)])
            cuts = snapped if len(snapped) >= FEWEST - 1 else cuts
    return [window for window in np.split(np.arange(count), cuts) if len(window)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share with its Wilson interval."""

    value: float
    low: float
    high: float
    count: int
    n: int

    def __str__(self) -> str:
        return f"{self.value:.1%} ({self.count:,} of {self.n:,}) [{self.low:.1%}, {self.high:.1%}]"


def share_of(flags: Sequence[bool] | NDArray[np.bool_]) -> Share:
    """The share of true flags, of which there is at least one, with the 95 % Wilson interval."""
    count, n = int(np.sum(flags)), len(flags)
    interval: Any = scipy_stats().binomtest(count, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Share(value=count / n, low=float(interval.low), high=float(interval.high), count=count, n=n)


def in_sd(size: float) -> str:
    """A change in standard deviations in words; it is infinite where the values before it were all equal."""
    return f"{size:.2f} SD" if math.isfinite(size) else "from equal values"
