"""
How much longer CartPole-v1 takes that is recorded, at default settings, from the session's start to its end.

The same seeded random actions are played for 100,000 steps, whose episodes last some 22 steps, by
`gymnasium.make("CartPole-v1")` bare and after `mttp.instrument(env)`, to a file. The time is that from
`mttp.configure` to the end of `session.close()`; imports and making the environment are not in it. What
the file says of the episodes must be what was played.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cases import Case, Figures, Measure

SECONDS, QUICK_SECONDS, ROUNDS = 1.0, 0.01, 7
SAME = ("episodes", "returns")
STEPS = 100_000
"""Steps per requested second."""
RECORDED = Path("own.jsonl")


def played(*, is_recorded: bool) -> Measure:
    """Return a measure of playing, with or without recording."""

    def measure(seconds: float) -> Figures:
        import gymnasium

        import mttp

        env, steps = gymnasium.make("CartPole-v1"), round(STEPS * seconds)
        start = time.perf_counter()
        session = mttp.configure(f"file://{RECORDED.absolute()}") if is_recorded else None
        if is_recorded:
            mttp.instrument(env)
        episodes, returns = _play(env, steps)
        if session is not None:
            session.close()
        took = time.perf_counter() - start
        return {"step_us": 1e6 * took / steps, "episodes": episodes, "returns": returns}

    return measure


def _play(env: Any, steps: int) -> tuple[int, float]:
    """Play that many steps; return the number of ended episodes, and their returns together."""
    import numpy as np

    env.reset(seed=7)
    over, returns, so_far = 0, 0.0, 0.0
    for action in np.random.default_rng(0).integers(0, 2, steps).tolist():
        _, reward, terminated, truncated, _ = env.step(action)
        so_far += float(reward)
        if terminated or truncated:
            over, returns, so_far = over + 1, returns + so_far, 0.0
            env.reset()
    env.close()
    return over, returns


def _arrived(figures: Figures) -> Figures:
    """Compare the file with the played episodes."""
    import mttp

    found = [episode.return_ for episode in mttp.read(RECORDED).episodes if episode.terminated]
    assert (figures["episodes"], figures["returns"]) == (len(found), sum(found)), "not what was played"
    return {}


CASES = {
    "bare": Case(played(is_recorded=False)),
    "mttp": Case(played(is_recorded=True), check=_arrived),
}
