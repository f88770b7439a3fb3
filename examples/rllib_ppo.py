"""Train RLlib's PPO on CartPole for two iterations, record it with one added line, and read the recording.

It needs `pip install 'mttp[rllib]'`, and takes less than a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import mttp


def main(argv: Sequence[str] | None = None) -> None:
    """Train, record everything, and print the recording."""
    parser = argparse.ArgumentParser(description="Train RLlib's PPO on CartPole, recorded.")
    parser.add_argument("--iterations", type=int, default=2, help="calls of train() (default: %(default)s)")
    parser.add_argument("--out", default="runs/rllib.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    from ray.rllib.algorithms.ppo import PPOConfig

    from mttp.integrations.rllib import EpisodeCallback

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(train_batch_size=400, minibatch_size=100, num_epochs=2)
        .debugging(seed=1)
        .callbacks(EpisodeCallback)  # the one added line
    )
    with mttp.configure(f"file://{args.out}", run="rllib-ppo"):
        algorithm = config.build_algo()
        for _ in range(args.iterations):
            algorithm.train()
        algorithm.stop()

    recording = mttp.read(args.out)
    returns = [episode.return_ or 0.0 for episode in recording if episode.status == "completed"]
    print(f"{len(returns)} episodes, mean return {sum(returns) / len(returns):.1f}")
    for update in recording.updates:
        print(f"update {update.index}: loss {update.loss:.3f}, KL {update.kl:.5f}")


if __name__ == "__main__":
    main()
