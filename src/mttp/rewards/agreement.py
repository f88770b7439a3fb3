"""How far rewards agree with what people gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Rewards against people's scores, pair by pair of cases."""

    cases: int
    """Cases that have both."""
    tau_b: float | None
    """Kendall's rank correlation with ties, from -1 to 1; None where either side is all the same."""
    accuracy: float | None
    """Of the pairs that people tell apart, the share that rewards order the same way; None without any."""
    pairs: int
    """The number of those pairs."""


def agreement(scored: Sequence[tuple[float, float]]) -> Agreement | None:
    """The agreement of (reward, person's score) pairs; None where there are fewer than two."""
    if len(scored) < 2:
        return None
    signs = [(_sign(one[0] - two[0]), _sign(one[1] - two[1])) for one, two in combinations(scored, 2)]
    told_apart = [ours == theirs for ours, theirs in signs if theirs]
    by_reward = sum(1 for ours, _ in signs if ours)
    scale = math.sqrt(by_reward * len(told_apart))
    return Agreement(
        cases=len(scored),
        tau_b=sum(ours * theirs for ours, theirs in signs) / scale if scale else None,
        accuracy=sum(told_apart) / len(told_apart) if told_apart else None,
        pairs=len(told_apart),
    )


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
