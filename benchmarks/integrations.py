"""
What recording adds to a training step of the libraries that are recorded.

A training step of PPO is a rollout of 512 steps of CartPole-v1 and an update of 10 epochs, and one of DQN is
4 steps and a gradient step; both with the library's own network, on one thread of a processor.
The model trains bare and instrumented, from the same seed, to a file at default settings, and must end in the
same weights. Of the figures, `cpu_ms` is CPU time of everything per training step, the final flush inside,
and `wall_ms` is wall time.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import main
from questions import Case, Measure, Question
from usage import cpu_seconds, peak_mb

FIGURES = {
    "cpu_ms": "CPU ms per training step, flush included",
    "wall_ms": "wall ms per training step",
    "peak_mb": "peak memory in MB",
}
PPO = ("PPO", 512, {"n_steps": 512})
DQN = ("DQN", 4, {"learning_starts": 0, "train_freq": 4, "buffer_size": 10_000})


def trained(what: tuple[str, int, dict[str, Any]], *, is_recorded: bool) -> Measure:
    """A measure of training."""
    name, size, arguments = what

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        import stable_baselines3
        import torch

        torch.set_num_threads(1)
        count = max(2, (4096 if seconds > 0.2 else 1024) // size)
        model = getattr(stable_baselines3, name)(
            "MlpPolicy", "CartPole-v1", seed=7, device="cpu", **arguments
        )
        flush = None
        if is_recorded:
            import mttp

            flush = mttp.configure(f"file://{Path('own.jsonl').absolute()}").flush
            mttp.instrument(model)
        model.learn(size)
        cpu, wall = -cpu_seconds(), -time.perf_counter()
        model.learn(count * size)
        if flush is not None:
            assert flush()
        cpu, wall = cpu + cpu_seconds(), wall + time.perf_counter()
        weights = b"".join(item.numpy().tobytes() for item in model.policy.state_dict().values())
        each = 1e3 / count
        return weights, {"cpu_ms": cpu * each, "wall_ms": wall * each, "peak_mb": peak_mb()}

    return measure


def absent() -> str:
    """Why Stable-Baselines3 can't be measured here."""
    if find_spec("stable_baselines3") is None:
        return "Stable-Baselines3 is not here; run this by the Python of .integrations/stable-baselines3"
    return ""


QUESTIONS = {
    f"sb3-{what[0].lower()}": Question(
        text=f"What recording adds to a training step of Stable-Baselines3's {what[0]}.",
        figures=FIGURES,
        cases={
            "bare": Case(trained(what, is_recorded=False), absent=absent),
            "mttp": Case(trained(what, is_recorded=True), absent=absent),
        },
    )
    for what in (PPO, DQN)
}

if __name__ == "__main__":
    main(QUESTIONS)
