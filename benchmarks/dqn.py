"""
What recording adds to a gradient step of Stable-Baselines3's DQN, at default settings of both.

DQN plays 4 steps of CartPole-v1 for each gradient step, with the library's own network, on one thread of the
processor. The model trains bare and after `mttp.instrument(model)`, to a file, from the same seed, and must
end in the same weights. The first 100 gradient steps do not count, so that what a session starts is over;
closing it counts.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path

from cases import Case, Environment, Figures, Measure
from usage import cpu_seconds

SECONDS, QUICK_SECONDS, ROUNDS = 4.0, 0.1, 5
SAME = ("weights",)
GRADIENT_STEPS, AHEAD = 250, 100
"""Gradient steps per requested second, and before the first."""
STABLE_BASELINES3 = Environment("stable-baselines3", made_by=".ci/integrations stable-baselines3")


def trained(*, is_recorded: bool) -> Measure:
    """Return a measure of training, with or without recording."""

    def measure(seconds: float) -> Figures:
        import torch
        from stable_baselines3 import DQN

        import mttp

        torch.set_num_threads(1)
        steps = max(round(GRADIENT_STEPS * seconds), 4)
        model = DQN("MlpPolicy", "CartPole-v1", seed=7, device="cpu")
        session = mttp.configure(f"file://{Path('own.jsonl').absolute()}") if is_recorded else None
        if is_recorded:
            mttp.instrument(model)
        model.learn(model.learning_starts + 4 * AHEAD)
        used, start = -cpu_seconds(), time.perf_counter()
        model.learn(4 * steps, reset_num_timesteps=False)
        if session is not None:
            session.close()
        took, used = time.perf_counter() - start, used + cpu_seconds()
        weights = b"".join(item.numpy().tobytes() for item in model.policy.state_dict().values())
        return {"step_ms": 1e3 * took / steps, "cpu_ms": 1e3 * used / steps, "weights": zlib.crc32(weights)}

    return measure


CASES = {
    "bare": Case(trained(is_recorded=False), STABLE_BASELINES3),
    "mttp": Case(trained(is_recorded=True), STABLE_BASELINES3),
}
