"""Aggregates of several runs on each side: interquartile means and the probability of improvement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mttp.model.statistics.inference import interquartile_mean, probability_of_improvement

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RunAggregates", "run_aggregates"]

_RESAMPLES = 2_000
_SEED = 0
_Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAggregates:
    """
    Aggregates over runs and tasks, with intervals by a bootstrap that is stratified by task.

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """

    interquartile_means: tuple[float, float]
    """The mean of the middle half of all values, of each side."""
    effect: float
    """Their difference, candidate - base."""
    interval: tuple[float, float]
    """Percentiles of 2,000 resamples of the runs within each task."""
    improvement: float
    """The probability that a run of the candidate is better than one of the base, a tie counting half."""
    improvement_interval: tuple[float, float]
    runs: tuple[int, int]
    tasks: int


def run_aggregates(
    base: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
    *,
    direction: int = 1,
    confidence: float = 0.95,
) -> RunAggregates | None:
    """
    The aggregates of values by task, one value per run; None for fewer than two runs in a task.

    `direction` is -1 where less is better.
    """
    tasks = sorted(base.keys() & candidate.keys())
    sides = [[np.asarray(side[task], dtype=float) for task in tasks] for side in (base, candidate)]
    if not tasks or min(len(values) for side in sides for values in side) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    drawn = [[_resampled(values, rng) for values in side] for side in sides]
    means = [interquartile_mean(np.concatenate(side, axis=-1)) for side in drawn]
    improvements = _improvement(drawn, direction)
    bounds = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(means[1] - means[0], bounds)
    least, most = np.quantile(improvements, bounds)
    first, second = (float(interquartile_mean(np.concatenate(side))) for side in sides)
    return RunAggregates(
        interquartile_means=(first, second),
        effect=second - first,
        interval=(float(low), float(high)),
        improvement=float(_improvement(sides, direction)),
        improvement_interval=(float(least), float(most)),
        runs=(max(map(len, sides[0])), max(map(len, sides[1]))),
        tasks=len(tasks),
    )


def _resampled(values: _Floats, rng: np.random.Generator) -> _Floats:
    """Resamples with replacement, shape [resamples, runs]."""
    return values[rng.integers(len(values), size=(_RESAMPLES, len(values)))]


def _improvement(sides: Sequence[Sequence[_Floats]], direction: int) -> _Floats:
    """The mean over tasks, of each resample."""
    pairs = zip(*sides, strict=True)
    improvements = [probability_of_improvement(direction * base, direction * other) for base, other in pairs]
    return np.asarray(np.mean(improvements, axis=0))
