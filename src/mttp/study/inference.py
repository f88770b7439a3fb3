"""Effects of one sample against another: an estimate, its interval, its p value and what it could detect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import MissingExtra
from mttp.model.estimates import FEWEST_EQUAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Inference",
    "interquartile_mean",
    "of_runs",
    "paired",
    "probability_of_improvement",
    "scipy_stats",
    "unpaired",
]

Floats: TypeAlias = "NDArray[np.float64]"

POWER = 0.8
"""The power at which `Inference.detectable` is computed."""
_EXACT = 15
"""Differences of up to this number of pairs are permuted exhaustively: 2**15 signs."""
_RESAMPLES = 2_000
_Z = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """The effect of a candidate against a base, `candidate - base`."""

    effect: float
    """The difference of the means."""
    interval: tuple[float, float] | None
    """The confidence interval of the effect; None where the data do not support one."""
    p_value: float | None
    """Two-sided, for no effect; None where the data do not support one."""
    detectable: float | None
    """The least effect that this sample detects with a power of 80 %."""
    method: str
    """How interval and p value were computed."""


def paired(
    base: Sequence[float] | Floats,
    candidate: Sequence[float] | Floats,
    *,
    binary: bool = False,
    confidence: float = 0.95,
) -> Inference:
    """
    The mean difference of independent pairs: one value of each side per task or other cluster.

    Outcomes (values that are all 0 or 1, and not all equal unless `binary`): McNemar's exact test,
    and the Clopper-Pearson interval of the share of gains among the pairs that differ, scaled to all pairs.
    Others: Student's t; up to 15 of them also the exact permutation test of the signs.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    found = after - before
    count, effect = len(found), _mean(found)
    if count >= 2 and _are_outcomes(before, after, binary):
        return _mcnemar(found, effect, confidence)
    error = _standard_error(found)
    method = f"paired t over {count:,} differences"
    if error is None or (error <= _Z * abs(effect) and count < FEWEST_EQUAL):
        return Inference(effect=effect, interval=None, p_value=None, detectable=None, method=method)
    made = _t(effect, error, count - 1, confidence, method)
    if 2 <= count <= _EXACT and error > 0:
        p_value = _permuted_signs(found)
        return Inference(
            effect=effect,
            interval=made.interval,
            p_value=p_value,
            detectable=made.detectable,
            method=f"{method}; p by exact permutation of signs",
        )
    return made


def unpaired(
    base: Sequence[float] | Floats,
    candidate: Sequence[float] | Floats,
    *,
    binary: bool = False,
    confidence: float = 0.95,
) -> Inference:
    """
    The difference of the means of two independent samples, one value per cluster.

    Outcomes, as in `paired`: Newcombe's interval (1998, method 10) of two Wilson intervals, and Fisher's
    exact test where an expected count is below 5, else the score test. Others: Welch's t.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(candidate, dtype=float)
    effect = _mean(after) - _mean(before)
    if min(len(before), len(after)) >= 1 and _are_outcomes(before, after, binary):
        return _proportions(before, after, effect, confidence)
    first, second = _standard_error(before), _standard_error(after)
    method = f"Welch t over {len(before):,} and {len(after):,} values"
    if first is None or second is None:
        return Inference(effect=effect, interval=None, p_value=None, detectable=None, method=method)
    error = math.hypot(first, second)
    if error <= _Z * max(abs(_mean(before)), abs(_mean(after))):
        few = min(len(before), len(after)) < FEWEST_EQUAL
        if few:
            return Inference(effect=effect, interval=None, p_value=None, detectable=None, method=method)
        return _t(effect, 0.0, min(len(before), len(after)) - 1, confidence, method)
    freedom = error**4 / (
        (first**4 / (len(before) - 1) if first else 0.0) + (second**4 / (len(after) - 1) if second else 0.0)
    )
    return _t(effect, error, freedom, confidence, method)


def of_runs(
    base: Sequence[float] | Floats, candidate: Sequence[float] | Floats, *, confidence: float = 0.95
) -> Inference:
    """
    The difference of the means of independent training runs, one value per run: Welch's t.

    One run a side gives no interval: the variance between runs is unknown (Henderson et al. 2018).
    """
    if min(len(base), len(candidate)) >= 2:
        found = unpaired(base, candidate, confidence=confidence)
        method = f"Welch t over {len(base)} and {len(candidate)} runs"
        return Inference(
            effect=found.effect,
            interval=found.interval,
            p_value=found.p_value,
            detectable=found.detectable,
            method=method,
        )
    effect = _mean(np.asarray(candidate, dtype=float)) - _mean(np.asarray(base, dtype=float))
    method = f"no interval: {len(base)} and {len(candidate)} runs"
    return Inference(effect=effect, interval=None, p_value=None, detectable=None, method=method)


def interquartile_mean(values: Floats) -> Floats:
    """
    The mean of the middle half of the values, along the last axis: 25 % are cut off at each end.

    Source: Agarwal et al. 2021.
    """
    return np.asarray(scipy_stats().trim_mean(values, 0.25, axis=-1))


def probability_of_improvement(base: Floats, candidate: Floats) -> Floats:
    """The share of pairs, along the last axis, with a larger value of the candidate; a tie counts half."""
    before, after = base[..., None, :], candidate[..., :, None]
    return np.asarray((after > before).mean(axis=(-2, -1)) + (after == before).mean(axis=(-2, -1)) / 2)


# The pieces.


def _mcnemar(found: Floats, effect: float, confidence: float) -> Inference:
    count = len(found)
    gains, losses = int((found > 0).sum()), int((found < 0).sum())
    differing = gains + losses
    method = f"McNemar's exact test, {gains} gained and {losses} lost of {count:,} pairs"
    if not differing:
        # All pairs agree: how many may differ is bounded by the rule for no event among `count`.
        high = 1 - (1 - confidence) ** (1 / count)
        bounds = (-high, high) if count >= FEWEST_EQUAL else None
        return Inference(effect=effect, interval=bounds, p_value=1.0, detectable=high, method=method)
    low, high = (
        (2 * side - 1) * differing / count for side in _clopper_pearson(gains, differing, confidence)
    )
    error = math.sqrt(differing - (gains - losses) ** 2 / count) / count
    return Inference(
        effect=effect,
        interval=(low, high),
        # Under no effect the binomial distribution is symmetric: both tails are twice the smaller one.
        p_value=min(1.0, 2 * float(_special().bdtr(min(gains, losses), differing, 0.5))),
        detectable=_detectable(error, count - 1, confidence),
        method=method,
    )


def _clopper_pearson(events: int, count: int, confidence: float) -> tuple[float, float]:
    """The exact interval of a share, by quantiles of the beta distribution."""
    quantile, tail = _special().betaincinv, (1 - confidence) / 2
    low = float(quantile(events, count - events + 1, tail)) if events else 0.0
    high = float(quantile(events + 1, count - events, 1 - tail)) if events < count else 1.0
    return low, high


def _proportions(before: Floats, after: Floats, effect: float, confidence: float) -> Inference:
    stats = scipy_stats()
    first, second = int(before.sum()), int(after.sum())
    table = [[second, len(after) - second], [first, len(before) - first]]
    share = (first + second) / (len(before) + len(after))
    expected = min(share, 1 - share) * min(len(before), len(after))
    sides = []
    for passed, count in ((first, len(before)), (second, len(after))):
        found = stats.binomtest(passed, count).proportion_ci(confidence_level=confidence, method="wilson")
        sides.append((passed / count, found.low, found.high))
    (p, p_low, p_high), (q, q_low, q_high) = sides
    interval = (effect - math.hypot(q - q_low, p_high - p), effect + math.hypot(q_high - q, p - p_low))
    if expected < 5:
        p_value, test = float(stats.fisher_exact(table).pvalue), "Fisher's exact test"
    else:
        p_value, test = float(stats.chi2_contingency(table, correction=False).pvalue), "score test"
    error = math.sqrt(share * (1 - share) * (1 / len(before) + 1 / len(after)))
    return Inference(
        effect=effect,
        interval=interval,
        p_value=p_value,
        detectable=_detectable(error, math.inf, confidence),
        method=f"{test} and Newcombe interval, {first:,} of {len(before):,} and {second:,} of {len(after):,}",
    )


def _t(effect: float, error: float, freedom: float, confidence: float, method: str) -> Inference:
    half = _quantile((1 + confidence) / 2, freedom) * error
    distance = abs(effect) / error if error else (math.inf if effect else 0.0)
    p_value = float(2 * _special().stdtr(freedom, -distance))
    return Inference(
        effect=effect,
        interval=(effect - half, effect + half),
        p_value=p_value,
        detectable=_detectable(error, freedom, confidence),
        method=method,
    )


def _detectable(error: float, freedom: float, confidence: float) -> float:
    return (_quantile((1 + confidence) / 2, freedom) + _quantile(POWER, freedom)) * error


def _quantile(share: float, freedom: float) -> float:
    special = _special()
    return float(special.stdtrit(freedom, share) if math.isfinite(freedom) else special.ndtri(share))


def _permuted_signs(found: Floats) -> float:
    """The share of all assignments of signs whose mean is at least as far from zero."""
    signs = 1 - 2 * ((np.arange(2 ** len(found))[:, None] >> np.arange(len(found))) & 1)
    sums = np.abs(signs @ found)
    return float((sums >= abs(found.sum()) * (1 - _Z)).mean())


def _mean(found: Floats) -> float:
    return float(found.mean()) if len(found) else math.nan


def _standard_error(found: Floats) -> float | None:
    return float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) >= 2 else None


def _are_outcomes(before: Floats, after: Floats, binary: bool) -> bool:
    """Whether the values are passes and failures: metrics that only happen to be 0 or 1 have both."""
    values = set(np.unique(np.concatenate([before, after])))
    return values <= {0.0, 1.0} and (binary or len(values) == 2)


def scipy_stats() -> Any:
    """The module `scipy.stats`; raises MissingExtra without scipy."""
    return _scipy("stats")


def _special() -> Any:
    """The module `scipy.special`, which is imported in a fifth of the time of `scipy.stats`."""
    return _scipy("special")


def _scipy(name: str) -> Any:
    try:
        return import_module(f"scipy.{name}")
    except ImportError as error:
        raise MissingExtra(package="scipy", extra="study", purpose="comparing runs") from error
