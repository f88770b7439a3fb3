"""One run of several seeds that ends far below the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.trends import FEWEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

Levels: TypeAlias = "Mapping[str, NDArray[np.float64]]"
ALPHA = 0.05
LARGE = 2.0
"""The gap in standard deviations of episodes at which hardly any episode reaches the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedGap:
    """How far a run ends below the others."""

    level: float
    others: float
    size: float
    """The gap in standard deviations of the episodes of a run."""
    p_value: float
    """One-sided t test of one more value below those of the others, corrected for all runs (Grubbs 1969)."""
    runs: int

    @property
    def is_collapse(self) -> bool:
        """Whether the gap is beyond chance and matters."""
        return self.p_value <= ALPHA and self.size >= LARGE


def seed_gap(levels: Levels, run: str) -> SeedGap | None:
    """The gap of a run; None with fewer than two others, or fewer than `FEWEST` episodes of one."""
    others = np.array([values.mean() for name, values in levels.items() if name != run])
    if run not in levels or len(others) < 2 or min(map(len, levels.values())) < FEWEST:
        return None
    level, center = float(levels[run].mean()), float(others.mean())
    within = float(np.mean([values.var(ddof=1) for values in levels.values()]))
    error = math.sqrt((float(others.var(ddof=1)) + within / len(levels[run])) * (1 + 1 / len(others)))
    gap = center - level
    if gap <= 0:
        return SeedGap(level=level, others=center, size=0.0, p_value=1.0, runs=len(levels))
    p_value = float(scipy_stats().t.sf(gap / error, len(others) - 1)) if error else 0.0
    size = gap / math.sqrt(within) if within else math.inf
    return SeedGap(
        level=level, others=center, size=size, p_value=min(1.0, p_value * len(levels)), runs=len(levels)
    )


def collapsed(levels: Levels) -> str | None:
    """The run that ends far below the others; None where there is none."""
    return next((run for run in levels if (gap := seed_gap(levels, run)) and gap.is_collapse), None)
