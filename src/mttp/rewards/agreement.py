"""Agreement between rewards and people's scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Pairwise agreement of rewards with people's scores."""

    cases: int
    """The number of cases with a reward and a person's score."""
    tau_b: float | None
    """Kendall's tau-b, from -1 to 1; None if all rewards or all scores are equal."""
    accuracy: float | None
    """The share of `pairs` that rewards order as people do; None without pairs."""
    pairs: int
    """The number of pairs of cases with different scores."""


def agreement(scored: Sequence[tuple[float, float]]) -> Agreement | None:
    """Return the agreement of (reward, person's score) pairs, or None for fewer than two."""
    if len(scored) < 2:
        return None
    signs = [(_sign(one[0] - two[0]), _sign(one[1] - two[1])) for one, two in combinations(scored, 2)]
    untied = [ours == theirs for ours, theirs in signs if theirs]
    by_reward = sum(1 for ours, _ in signs if ours)
    scale = math.sqrt(by_reward * len(untied))
    return Agreement(
        cases=len(scored),
        tau_b=sum(ours * theirs for ours, theirs in signs) / scale if scale else None,
        accuracy=sum(untied) / len(untied) if untied else None,
        pairs=len(untied),
    )


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
