"""Statistics of evaluations: pass@k, means and their intervals, quantiles of times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "FEWEST_EQUAL",
    "INSTALL_SCIPY",
    "PassEstimate",
    "TimeQuantiles",
    "mean",
    "pass_at_k",
    "pass_estimates",
    "pass_hat_k",
    "sample_sizes",
    "standard_error",
    "t_interval",
    "time_quantiles",
]

INSTALL_SCIPY = "pip install 'mttp[study]'"
"""The command that installs scipy, which computes intervals."""
FEWEST_EQUAL = 6
"""The number of equal values that an interval needs: fewer have the same sign by chance in over 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEstimate:
    """The probabilities that at least one of k samples of a task passes, and that all pass."""

    k: int
    """The number of samples drawn per task."""
    tasks: int
    """The number of tasks with k or more samples that have a verdict; the estimates are means over them."""
    pass_at_k: float | None
    """Mean of 1 - C(n-c, k) / C(n, k) for c of n samples passed (Chen et al. 2021); None without tasks."""
    pass_hat_k: float | None
    """Mean of C(c, k) / C(n, k), pass^k (Yao et al. 2024); None without tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeQuantiles:
    """Quantiles of the times of calls, in seconds."""

    calls: int
    """The number of calls with a known time."""
    median: float
    """The median, in seconds."""
    p95: float
    """The 95th percentile in seconds, by linear interpolation."""


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """
    Return the probability that at least one of k samples passes, drawn from n of which c passed.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374); None if n < k.
    """
    return None if n < k else 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """
    Return the probability that all of k samples pass, drawn from n of which c passed.

    C(c, k) / C(n, k) (Yao et al. 2024, arXiv:2406.12045); None if n < k.
    """
    return None if n < k else math.comb(c, k) / math.comb(n, k)


def pass_estimates(counts: Iterable[tuple[int, int]], sizes: Iterable[int]) -> tuple[PassEstimate, ...]:
    """
    Return the estimates for each k in `sizes`, from each task's number of samples and of passes.

    Raises ValueError for a k below 1.
    """
    known, sizes = list(counts), list(sizes)
    for k in sizes:
        if k < 1:
            raise ValueError(f"k={k} is not a number of samples; give 1 or more")
    return tuple(_pass_estimate([(n, c) for n, c in known if n >= k], k) for k in sizes)


def _pass_estimate(counts: Sequence[tuple[int, int]], k: int) -> PassEstimate:
    return PassEstimate(
        k=k,
        tasks=len(counts),
        pass_at_k=mean(pass_at_k(n, c, k) for n, c in counts),
        pass_hat_k=mean(pass_hat_k(n, c, k) for n, c in counts),
    )


def sample_sizes(samples: int) -> list[int]:
    """Return the powers of two below `samples`, and `samples` itself."""
    return [*(1 << power for power in range((samples - 1).bit_length())), samples]


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    try:
        return math.fsum(known) / len(known) if known else None
    except OverflowError:
        return math.fsum(value / len(known) for value in known)


def standard_error(values: Sequence[float]) -> float | None:
    """
    Return the standard error of the mean, s / sqrt(n); None for fewer than two values, and on overflow.

    Samples of one task are not independent: pass one value per task, the mean of its samples.
    """
    center = mean(values)
    if center is None or len(values) < 2:
        return None
    deviations = [value - center for value in values]
    largest = max(map(abs, deviations))
    if not math.isfinite(largest):
        return None
    if largest <= 1e-12 * max(map(abs, values)):
        return 0.0
    spread = math.sqrt(math.fsum((deviation / largest) ** 2 for deviation in deviations) / (len(values) - 1))
    return largest / math.sqrt(len(values)) * spread


def t_interval(center: float, error: float | None, count: int) -> tuple[float, float] | None:
    """
    Return the 95 % interval by Student's t for the mean of `count` values with this standard error.

    None without a standard error, without scipy, and for fewer than six values that are all equal,
    for which an interval of width zero would be too narrow.
    """
    if error is None or count < 2 or (error == 0 and count < FEWEST_EQUAL):
        return None
    try:
        from scipy.special import stdtrit  # scipy.stats takes several times as long to import
    except ImportError:
        return None
    half = float(stdtrit(count - 1, 0.975)) * error
    low, high = center - half, center + half
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def time_quantiles(seconds: Iterable[float]) -> TimeQuantiles | None:
    """Return the median and the 95th percentile of times in seconds; None without any."""
    known = [*seconds]
    if not known:
        return None
    import numpy as np

    median, p95 = np.quantile(known, (0.5, 0.95))
    return TimeQuantiles(calls=len(known), median=float(median), p95=float(p95))
