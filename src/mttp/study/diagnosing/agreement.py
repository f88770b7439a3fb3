"""Agreement of repeated scores of the same things."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mttp.model.statistics.inference import scipy_stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Intraclass:
    """The one-way intraclass correlation, ICC(1), with its 95 % interval."""

    icc: float
    interval: tuple[float, float]
    within: float
    """The mean square within: the variance of repeated scores."""
    n: int
    """Things that were scored."""

    @property
    def noise(self) -> float:
        """The share of the variance that repeated scores do not share; from 0 to 1."""
        return 1 - max(0.0, self.icc)

    @property
    def noise_interval(self) -> tuple[float, float]:
        """The interval of that share."""
        low, high = self.interval
        return 1 - max(0.0, high), 1 - max(0.0, low)

    def __str__(self) -> str:
        low, high = self.noise_interval
        return f"{self.noise:.1%} [{low:.1%}, {high:.1%}] (1 - ICC(1), F interval, 95 %, n={self.n:,})"


def intraclass(scores: Iterable[Sequence[float]]) -> Intraclass | None:
    """
    ICC(1) with the interval by F of Shrout and Fleiss (1979); sizes may differ (Donner 1986).

    Things with one score do not count. None for fewer than two others, and where all scores are equal.
    """
    groups = [np.array(group, dtype=float) for group in scores if len(group) >= 2]
    if len(groups) < 2:
        return None
    count, total = len(groups), sum(map(len, groups))
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (count - 1)
    center = np.concatenate(groups).mean()
    between = sum(len(group) * float(group.mean() - center) ** 2 for group in groups) / (count - 1)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - count)
    if between + within == 0:
        return None
    f, freedom = scipy_stats().f, (count - 1, total - count)
    ratio = math.inf if within == 0 else between / within
    icc, low, high = (
        1.0 if math.isinf(bound) else (bound - 1) / (bound + size - 1)
        for bound in (ratio, ratio / float(f.ppf(0.975, *freedom)), ratio / float(f.ppf(0.025, *freedom)))
    )
    return Intraclass(icc=icc, interval=(low, high), within=within, n=count)
