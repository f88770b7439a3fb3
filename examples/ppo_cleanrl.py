"""PPO in one file in the style of CleanRL; three added lines record its episodes and its updates.

It needs torch and `pip install 'mttp[gymnasium]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

import mttp


def train(args: argparse.Namespace) -> None:
    """Train an agent on CartPole."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * args.num_envs)
    mttp.instrument(envs, policy="ppo")  # added: each environment's episodes

    def network(outputs: int) -> Any:
        return nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
        )

    actor, critic = network(2), network(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=args.learning_rate, eps=1e-5)

    shape = args.num_steps, args.num_envs
    observations, actions = torch.zeros((*shape, 4)), torch.zeros(shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    observation, _ = envs.reset(seed=args.seed)
    next_observation, next_done = torch.tensor(observation), torch.zeros(args.num_envs)

    for _ in range(args.updates):
        for step in range(args.num_steps):
            observations[step], dones[step] = next_observation, next_done
            with torch.no_grad():
                policy = torch.distributions.Categorical(logits=actor(next_observation))
                actions[step] = action = policy.sample()
                logprobs[step], values[step] = policy.log_prob(action), critic(next_observation).flatten()
            observation, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_observation = torch.tensor(observation)
            next_done = torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32)

        with torch.no_grad():
            next_value = critic(next_observation).flatten()
        advantages, last = torch.zeros(shape), torch.zeros(args.num_envs)
        for step in reversed(range(args.num_steps)):
            follows = step + 1 < args.num_steps
            alive = 1 - (dones[step + 1] if follows else next_done)
            following = values[step + 1] if follows else next_value
            delta = rewards[step] + 0.99 * following * alive - values[step]
            advantages[step] = last = delta + 0.99 * 0.95 * alive * last
        returns = advantages + values

        flat = [tensor.flatten(0, 1) for tensor in (observations, actions, logprobs, advantages, returns)]
        for _ in range(4):
            for rows in torch.randperm(args.num_steps * args.num_envs).chunk(4):
                observed, action, old, advantage, target = (tensor[rows] for tensor in flat)
                policy = torch.distributions.Categorical(logits=actor(observed))
                ratio = (logratio := policy.log_prob(action) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)).mean()
                error = 0.5 * (critic(observed).flatten() - target).pow(2).mean()
                entropy = policy.entropy().mean()
                loss = -gain + 0.5 * error - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                kl = ((ratio - 1) - logratio).mean()
                norm = nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
                optimizer.step()
        mttp.update(loss=loss.item(), kl=kl.item(), entropy=entropy.item(), grad_norm=norm.item())  # added
    envs.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Train, record everything, and print the recording."""
    parser = argparse.ArgumentParser(description="Train a one-file PPO on CartPole, recorded.")
    parser.add_argument("--updates", type=int, default=20, help="updates to make (default: %(default)s)")
    parser.add_argument("--num-envs", type=int, default=4, help="environments (default: %(default)s)")
    parser.add_argument("--num-steps", type=int, default=128, help="steps per update (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2.5e-3, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/cleanrl.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    with mttp.configure(f"file://{args.out}", run="cleanrl", seed=args.seed, config=vars(args)):  # added
        train(args)

    recording = mttp.read(args.out)
    print(repr(recording))
    returns = [episode.return_ or 0.0 for episode in recording if episode.status == "completed"]
    print(f"mean return {np.mean(returns[:20]):.0f} at first, {np.mean(returns[-20:]):.0f} at the end")
    first, last = recording.updates[0], recording.updates[-1]
    print(f"entropy {first.entropy or 0:.2f} at first, {last.entropy or 0:.2f} at the end")


if __name__ == "__main__":
    main()
