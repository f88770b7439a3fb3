"""Scores of tasks against those of a baseline, compared as `mttp.compare` compares episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mttp.model.statistics.design import Design
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.model.statistics.metrics import EpisodeMetric
from mttp.model.statistics.verdicts import corrected

__all__ = ["compare_scores"]

_CONFIDENCE = 0.95


def compare_scores(
    base: Mapping[str, Sequence[float | None]], candidate: Mapping[str, Sequence[float | None]]
) -> MetricComparison:
    """
    Return the comparison of the scores of samples by task, paired by the tasks of both; None is missing.

    It equals the comparison of the reward of the episodes with these scores by `mttp.compare`.
    """
    shared = sorted(base.keys() & candidate.keys())
    metric = EpisodeMetric(name="reward", of=_itself, direction=1)
    sides: list[dict[str, list[float | None]]] = [
        {task: [*side[task]] for task in shared} for side in (base, candidate)
    ]
    plan = Design(base=sides[0], candidate=sides[1], unit="task", paired=True, notes=())  # type: ignore[arg-type]  # scores in place of episodes
    with np.errstate(over="ignore", invalid="ignore"):  # differences of huge scores
        (compared,) = corrected([plan.compare(metric, _CONFIDENCE, None)], [metric])
    return compared


def _itself(score: object) -> float | None:
    return score  # type: ignore[return-value]  # a score
