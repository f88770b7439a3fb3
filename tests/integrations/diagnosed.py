"""Runs whose reward rises, at the cost of the outcome or with it."""

from __future__ import annotations

import numpy as np

import mttp


def play(hacks: bool, episodes: int = 400) -> None:
    """Record a run whose reward rises, at the cost of the outcome where it is hacked."""
    rng = np.random.default_rng(0)
    for number in range(episodes):
        time = number / episodes
        with mttp.episode(env="qa") as episode:
            episode.reward(time + rng.random())
            share = 0.8 - 0.6 * time if hacks else 0.2 + 0.6 * time
            episode.end(outcome="success" if rng.random() < share else "failure")
