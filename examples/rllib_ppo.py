"""RLlib's PPO on CartPole for two iterations, with a runner in another process; under a minute."""

from __future__ import annotations

from ray.rllib.algorithms.ppo import PPOConfig

import mttp
from mttp.integrations.rllib import EpisodeCallback


def main() -> None:
    """Train, and print the mean return of each version of the policy."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1)
        .training(train_batch_size=400, minibatch_size=100, num_epochs=2)
        .debugging(seed=1)
        .callbacks(EpisodeCallback)  # the one added line
    )
    with mttp.configure(transport="file://runs/rllib/", run="rllib-ppo"):
        algorithm = config.build_algo()
        for _ in range(2):
            algorithm.train()
        algorithm.stop()

    recording = mttp.read("runs/rllib")
    ended = [episode for episode in recording if episode.status == "completed"]
    returns = [episode.return_ for episode in ended]
    print(f"{len(ended)} episodes, mean return {sum(returns) / len(ended):.1f}")
    for update in recording.updates:
        print(f"update {update.index}: loss {update.loss:.3f}, KL {update.kl:.5f}")


if __name__ == "__main__":
    main()
