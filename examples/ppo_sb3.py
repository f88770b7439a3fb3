"""Train Stable-Baselines3's PPO on CartPole, record it with one added line, and read the recording.

It needs `pip install 'mttp[sb3]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import mttp


def main(argv: Sequence[str] | None = None) -> None:
    """Train, record everything, and print the recording."""
    parser = argparse.ArgumentParser(description="Train PPO on CartPole, recorded.")
    parser.add_argument("--steps", type=int, default=8192, help="steps to train (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/ppo.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    with mttp.configure(f"file://{args.out}", run="ppo"):
        model = PPO("MlpPolicy", "CartPole-v1", n_steps=1024, seed=args.seed, device="cpu")
        mttp.instrument(model)  # the one added line
        model.learn(args.steps)

    recording = mttp.read(args.out)
    print(repr(recording))
    (run,) = recording.runs
    print(run.trainer, run.algorithm, run.policy_architecture, f"{run.policy_parameters} parameters")

    returns = [episode.return_ or 0.0 for episode in recording if episode.status == "completed"]
    print(f"mean return {np.mean(returns[:30]):.0f} at first, {np.mean(returns[-30:]):.0f} at the end")

    steps = [step for episode in recording for step in episode.steps]
    advantages = [step.advantage for step in steps if step.advantage is not None]
    print(f"{len(advantages)} of {len(steps)} steps have an advantage")
    print(
        "mean KL of the updates:", round(float(np.mean([update.kl or 0 for update in recording.updates])), 4)
    )


if __name__ == "__main__":
    main()
