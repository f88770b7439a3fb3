"""Effects of one sample against another: an estimate, its interval, its p value and what it could detect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import MissingExtra

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Inference",
    "ValueRange",
    "interquartile_mean",
    "of_runs",
    "paired",
    "probability_of_improvement",
    "scipy_stats",
    "tango_interval",
    "unpaired",
]

Floats: TypeAlias = "NDArray[np.float64]"
ValueRange: TypeAlias = tuple[float, float]
"""The lowest and the highest possible value."""

POWER = 0.8
"""The power at which `Inference.detectable` is computed."""
OUTCOMES: ValueRange = (0.0, 1.0)
"""The range of passes and failures."""
IF_OUTCOMES = "if only 0 and 1 are possible"
"""The condition of a method for passes and failures, where all values are 0 or 1 and no range is known."""
_EXACT = 15
"""Differences of up to this number of pairs are permuted exhaustively: 2**15 signs."""
_SMALL = 30
"""Two samples are permuted where one of them has fewer values."""
_PERMUTATIONS = 4_999
_SEED = 0
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """The effect of a candidate against a base, `candidate - base`."""

    effect: float
    """The difference of the means."""
    method: str
    """How interval and p value were computed, or why they were not."""
    interval: tuple[float, float] | None = None
    """The confidence interval of the effect; None where the data do not support one."""
    p_value: float | None = None
    """Two-sided, for no effect; None where the data do not support one."""
    detectable: float | None = None
    """The least effect that this sample detects with a power of 80 %; None where no effect is detected."""


def paired(
    base: Sequence[float] | Floats,
    candidate: Sequence[float] | Floats,
    *,
    span: ValueRange | None = None,
    confidence: float = 0.95,
) -> Inference:
    """
    Return the mean difference of independent pairs: one value of each side per task or other cluster.

    `span` is the range of the values, where it is known.
    Values that are all 0 or 1: McNemar's exact test, and Tango's score interval (1998).
    Others: Student's t; up to 15 of them also the exact permutation test of the signs.
    Differences that are all equal: the sign test, and an interval only where the span bounds how far others
    may lie.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    differences = after - before
    count, effect = len(differences), _mean(differences)
    if count >= 2 and _are_outcomes(before, after):
        return _mcnemar(differences, effect, span, confidence)
    error = _standard_error(differences)
    if error is None or error <= _EQUAL * max(_largest(before), _largest(after)):
        width = None if span is None else span[1] - span[0]
        return _of_equal_differences(effect, count, width, confidence)
    result = _t(effect, error, count - 1, confidence, f"paired t over {count:,} differences")
    if count > _EXACT:
        return result
    return replace(
        result,
        p_value=_permuted_signs(differences),
        detectable=result.detectable if 2 * 0.5**count <= 1 - confidence else None,
        method=f"{result.method}; p by exact permutation of signs",
    )


def unpaired(
    base: Sequence[float] | Floats,
    candidate: Sequence[float] | Floats,
    *,
    span: ValueRange | None = None,
    confidence: float = 0.95,
) -> Inference:
    """
    Return the difference of the means of two independent samples, one value per cluster.

    `span` is the range of the values, where it is known.
    Values that are all 0 or 1: Newcombe's interval (1998, method 10) of two Wilson intervals, and Fisher's
    exact test where an expected count is below 5, else the score test.
    Others: Welch's t; with fewer than 30 values on a side, p by a permutation test of Welch's t
    (Janssen 1997), which skewed values do not mislead.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    effect = _mean(after) - _mean(before)
    if min(len(before), len(after)) >= 2 and _are_outcomes(before, after):
        return _proportions(before, after, effect, span, confidence)
    first, second = _standard_error(before), _standard_error(after)
    if first is None or second is None:
        sizes = f"{len(before):,} and {len(after):,} values"
        return Inference(effect=effect, method=f"no interval: {sizes}")
    error = math.hypot(first, second)
    if error <= _EQUAL * max(_largest(before), _largest(after)):
        return _of_equal_sides(effect, len(before), len(after))
    result = _welch(before, after, effect, confidence)
    if min(len(before), len(after)) >= _SMALL:
        return result
    return replace(
        result,
        p_value=_permuted_welch(before, after),
        detectable=_if_reachable(result.detectable, len(before), len(after), confidence),
        method=f"{result.method}; p by {_PERMUTATIONS + 1:,} permutations of Welch's t",
    )


def of_runs(
    base: Sequence[float] | Floats, candidate: Sequence[float] | Floats, *, confidence: float = 0.95
) -> Inference:
    """
    Return the difference of the means of independent training runs, one value per run: Welch's t.

    One run against several: Student's t with the variance of the several, for the difference of one further
    run. One run a side gives no interval: the variance between runs is unknown (Henderson et al. 2018).
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    effect, sizes = _mean(after) - _mean(before), f"{len(before):,} and {len(after):,} runs"
    several = [side for side in (before, after) if len(side) >= 2]
    if not several:
        return Inference(effect=effect, method=f"no interval: {sizes}")
    if not len(before) or not len(after):
        return Inference(effect=effect, method=f"no interval: {sizes}")
    if max(float(np.ptp(side)) for side in several) <= _EQUAL * max(_largest(before), _largest(after)):
        return _of_equal_sides(effect, len(before), len(after))
    if len(several) == 2:
        return replace(_welch(before, after, effect, confidence), method=f"Welch t over {sizes}")
    (runs,) = several
    error = float(runs.std(ddof=1)) * math.sqrt(1 + 1 / len(runs))
    method = f"t of one run against {len(runs):,}, with the variance of these"
    return _t(effect, error, len(runs) - 1, confidence, method)


def interquartile_mean(values: Floats) -> Floats:
    """
    Return the mean of the middle half of the values, along the last axis: 25 % are cut off at each end.

    Source: Agarwal et al. 2021.
    """
    return np.asarray(scipy_stats().trim_mean(values, 0.25, axis=-1))


def probability_of_improvement(base: Floats, candidate: Floats) -> Floats:
    """Return the share of pairs, along the last axis, with a larger candidate; a tie counts half."""
    before, after = base[..., None, :], candidate[..., :, None]
    return np.asarray((after > before).mean(axis=(-2, -1)) + (after == before).mean(axis=(-2, -1)) / 2)


# Passes and failures.


def _are_outcomes(before: Floats, after: Floats) -> bool:
    return all(bool(np.isin(side, OUTCOMES).all()) for side in (before, after))


def _condition(span: ValueRange | None) -> str:
    return "" if span == OUTCOMES else f", {IF_OUTCOMES}"


def _mcnemar(differences: Floats, effect: float, span: ValueRange | None, confidence: float) -> Inference:
    count = len(differences)
    gains, losses = int((differences > 0).sum()), int((differences < 0).sum())
    differing = gains + losses
    deviation = math.sqrt(max(differing - (gains - losses) ** 2 / count, 1.0)) / count
    return Inference(
        effect=effect,
        interval=tango_interval(gains, losses, count, confidence),
        # Under no effect the binomial distribution is symmetric: both tails are twice the smaller one.
        p_value=min(1.0, 2 * float(_special().bdtr(min(gains, losses), differing, 0.5))),
        detectable=(
            _detectable(deviation, max(count - 1, 1), confidence)
            if 2 * 0.5**count <= 1 - confidence
            else None
        ),
        method=f"McNemar's exact test and Tango's interval, {gains:,} gained and {losses:,} lost of "
        f"{count:,} pairs{_condition(span)}",
    )


def tango_interval(gains: int, losses: int, count: int, confidence: float) -> tuple[float, float]:
    """
    Return the score interval of the difference of two shares in `count` pairs.

    Source: Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17.
    """
    z = float(_special().ndtri((1 + confidence) / 2))
    return -_tango_end(losses, gains, count, z), _tango_end(gains, losses, count, z)


def _tango_end(gains: int, losses: int, count: int, z: float) -> float:
    """Return the upper end: the largest difference that the score test does not reject."""

    def score(difference: float) -> float:
        """Return the score statistic, plus z, under this difference; it falls as the difference grows."""
        linear = -gains - losses + (2 * count - gains + losses) * difference
        root = math.sqrt(max(linear**2 + 8 * count * losses * difference * (1 - difference), 0.0))
        share = max((root - linear) / (4 * count), 0.0)  # of losses, by maximum likelihood
        variance = count * (2 * share + difference * (1 - difference))
        distance = gains - losses - count * difference
        return z + (distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance))

    effect = (gains - losses) / count
    if effect >= 1:
        return 1.0
    low, high = effect, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) > 0 else (low, middle)
    return high


def _proportions(
    before: Floats, after: Floats, effect: float, span: ValueRange | None, confidence: float
) -> Inference:
    stats = scipy_stats()
    first, second = int(before.sum()), int(after.sum())
    table = [[second, len(after) - second], [first, len(before) - first]]
    share = (first + second) / (len(before) + len(after))
    expected = min(share, 1 - share) * min(len(before), len(after))
    sides = []
    for passed, count in ((first, len(before)), (second, len(after))):
        bounds = stats.binomtest(passed, count).proportion_ci(confidence_level=confidence, method="wilson")
        sides.append((passed / count, bounds.low, bounds.high))
    (p, p_low, p_high), (q, q_low, q_high) = sides
    interval = (effect - math.hypot(q - q_low, p_high - p), effect + math.hypot(q_high - q, p - p_low))
    if expected < 5:
        p_value, test = float(stats.fisher_exact(table).pvalue), "Fisher's exact test"
    else:
        p_value, test = float(stats.chi2_contingency(table, correction=False).pvalue), "score test"
    sizes = 1 / len(before) + 1 / len(after)
    error = math.sqrt(share * (1 - share) * sizes)
    return Inference(
        effect=effect,
        interval=interval,
        p_value=p_value,
        detectable=_if_reachable(
            _detectable(error, math.inf, confidence) if error else None, len(before), len(after), confidence
        ),
        method=f"{test} and Newcombe interval, {first:,} of {len(before):,} and {second:,} of "
        f"{len(after):,}{_condition(span)}",
    )


# Numbers.


def _of_equal_differences(effect: float, count: int, width: float | None, confidence: float) -> Inference:
    """
    Return what equal differences show: nothing, or how rare and how large other ones may be.

    A difference that was not seen in `count` pairs has a share of at most 1 - alpha^(1 / count), and lies
    within `width` of 0.
    """
    if count < 2:
        return Inference(effect=effect, method=f"no interval: {count:,} pairs")
    p_value = min(1.0, 2 * 0.5**count) if effect else 1.0
    method = f"sign test of {count:,} equal differences"
    if width is None:
        method = f"{method}; no interval: the range of the values is not known"
        return Inference(effect=effect, p_value=p_value, method=method)
    share = 1 - ((1 - confidence) / 2) ** (1 / count)
    return Inference(
        effect=effect,
        interval=(effect - share * (effect + width), effect + share * (width - effect)),
        p_value=p_value,
        detectable=share * width if 2 * 0.5**count <= 1 - confidence else None,
        method=f"{method}; the interval is what their range allows",
    )


def _of_equal_sides(effect: float, first: int, second: int) -> Inference:
    """Return what two sides show whose values are each all equal: whether chance separates them so."""
    p_value = min(1.0, 2 / math.comb(first + second, first)) if effect else 1.0
    method = f"permutation test of {first:,} and {second:,} equal values"
    return Inference(
        effect=effect,
        p_value=p_value,
        method=f"{method}; no interval: the range of the values is not known",
    )


def _welch(before: Floats, after: Floats, effect: float, confidence: float) -> Inference:
    first, second = (float(side.var(ddof=1)) / len(side) for side in (before, after))
    freedom = (first + second) ** 2 / (first**2 / (len(before) - 1) + second**2 / (len(after) - 1))
    method = f"Welch t over {len(before):,} and {len(after):,} values"
    return _t(effect, math.sqrt(first + second), freedom, confidence, method)


def _t(effect: float, error: float, freedom: float, confidence: float, method: str) -> Inference:
    half = _quantile((1 + confidence) / 2, freedom) * error
    return Inference(
        effect=effect,
        interval=(effect - half, effect + half),
        p_value=float(2 * _special().stdtr(freedom, -abs(effect) / error)),
        detectable=_detectable(error, freedom, confidence),
        method=method,
    )


def _permuted_signs(differences: Floats) -> float:
    """Return the share of all assignments of signs whose mean is at least as far from zero."""
    count = len(differences)
    signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    sums = np.abs(signs @ differences)
    return float((sums >= abs(differences.sum()) * (1 - _EQUAL)).mean())


def _permuted_welch(before: Floats, after: Floats) -> float:
    """Return the share of random assignments to the sides whose Welch's t is at least as far from zero."""
    together = np.concatenate([before, after])
    rng = np.random.default_rng(_SEED)
    order = rng.permuted(np.tile(np.arange(len(together)), (_PERMUTATIONS, 1)), axis=1)
    drawn = together[order]
    distances = np.abs(_welch_t(drawn[:, : len(before)], drawn[:, len(before) :]))
    observed = abs(float(_welch_t(before[None], after[None])[0]))
    return float((1 + (distances >= observed * (1 - _EQUAL)).sum()) / (_PERMUTATIONS + 1))


def _welch_t(before: Floats, after: Floats) -> Floats:
    effects = after.mean(axis=1) - before.mean(axis=1)
    variances = before.var(axis=1, ddof=1) / before.shape[1] + after.var(axis=1, ddof=1) / after.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(effects == 0, 0.0, effects / np.sqrt(variances)))


def _if_reachable(detectable: float | None, first: int, second: int, confidence: float) -> float | None:
    """Return what is detectable; None where even separate sides have too large a p value."""
    return detectable if 2 / math.comb(first + second, first) <= 1 - confidence else None


def _detectable(error: float, freedom: float, confidence: float) -> float:
    return (_quantile((1 + confidence) / 2, freedom) + _quantile(POWER, freedom)) * error


def _quantile(share: float, freedom: float) -> float:
    special = _special()
    return float(special.stdtrit(freedom, share) if math.isfinite(freedom) else special.ndtri(share))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _largest(values: Floats) -> float:
    return float(np.abs(values).max()) if len(values) else 0.0


def _standard_error(values: Floats) -> float | None:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) >= 2 else None


def scipy_stats() -> Any:
    """Return the module `scipy.stats`; raises MissingExtra without scipy."""
    return _scipy("stats")


def _special() -> Any:
    """Return the module `scipy.special`, which is imported in a fifth of the time of `scipy.stats`."""
    return _scipy("special")


def _scipy(name: str) -> Any:
    try:
        return import_module(f"scipy.{name}")
    except ImportError as error:
        raise MissingExtra(package="scipy", extra="study", purpose="comparing runs") from error
