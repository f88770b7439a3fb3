"""Agreement between rewards and people's scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    agreed: int
    """The number of these pairs that rewards order as people do."""


def agreement(
    scored: Sequence[tuple[float, float]], weights: Sequence[float] | None = None
) -> Agreement | None:
    """
    Return the agreement of (reward, person's score) pairs, or None for fewer than two.

    With `weights`, a pair of cases counts in shares with the product of theirs.
    """
    if len(scored) < 2:
        return None
    rewards, scores = np.array(scored, float).T
    weight = np.ones(len(scored)) if weights is None else np.array(weights, float)
    pairs, agreed, alike, both, by_reward, by_person = 0, 0, 0.0, 0.0, 0.0, 0.0
    for place in range(len(scored) - 1):
        reward = np.sign(rewards[place] - rewards[place + 1 :])
        person = np.sign(scores[place] - scores[place + 1 :])
        product = weight[place] * weight[place + 1 :]
        pairs += int(np.count_nonzero(person))
        is_alike = (person != 0) & (reward == person)
        agreed += int(np.count_nonzero(is_alike))
        alike += float(product[is_alike].sum())
        both += float((product * reward * person).sum())
        by_reward += float(product[reward != 0].sum())
        by_person += float(product[person != 0].sum())
    scale = math.sqrt(by_reward * by_person)
    return Agreement(
        cases=len(scored),
        tau_b=both / scale if scale else None,
        accuracy=alike / by_person if by_person else None,
        pairs=pairs,
        agreed=agreed,
    )
