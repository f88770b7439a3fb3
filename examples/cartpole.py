"""Train a small numpy agent on CartPole, and record every episode with mttp.

The algorithm is REINFORCE: a linear softmax policy with a linear baseline, both trained with Adam.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

import mttp

DISCOUNT = 0.99
LEARNING_RATE = 0.05
EPISODES_PER_UPDATE = 6
OBSERVATION_SCALE = np.array([2.4, 3.0, 0.21, 3.0])  # cart position, cart speed, pole angle, pole speed

RECENT: deque[float] = deque(maxlen=50)

Array = npt.NDArray[Any]
OnEpisode = Callable[[int, float], None]


class Adam:
    """The Adam optimizer for one array of weights."""

    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.mean = np.zeros_like(weights)
        self.square = np.zeros_like(weights)
        self.steps = 0

    def step(self, gradient: Array) -> None:
        """Update the weights in place."""
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        mean = self.mean / (1 - 0.9**self.steps)
        square = self.square / (1 - 0.999**self.steps)
        self.weights -= LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)


class Policy:
    """A linear softmax policy with a linear baseline."""

    def __init__(self, features: int, actions: int) -> None:
        self.weights = np.zeros((features, actions))
        self.baseline = np.zeros(2 * features)
        self.weights_adam = Adam(self.weights)
        self.baseline_adam = Adam(self.baseline)

    def probabilities(self, features: Array) -> Array:
        """Return the probability of each action."""
        logits = features @ self.weights
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

    def learn(self, features: Array, actions: Array, returns: Array) -> None:
        """Update the policy with the advantages over the baseline, and fit the baseline."""
        baseline_features = np.hstack([features, features**2])  # squares: left and right are symmetric
        errors = returns - baseline_features @ self.baseline
        advantages = (errors - errors.mean()) / (errors.std() + 1e-8)
        taken = np.eye(self.weights.shape[1])[actions]
        slopes = (self.probabilities(features) - taken) * advantages[:, None]
        self.weights_adam.step(features.T @ slopes / len(features))
        self.baseline_adam.step(-baseline_features.T @ errors / len(features))


def play(
    env: gymnasium.Env[Any, Any], policy: Policy, rng: np.random.Generator, seed: int | None
) -> tuple[Array, Array, Array]:
    """Run one episode and return the features, action and reward of each step."""
    features, actions, rewards = [], [], []
    observation, _ = env.reset(seed=seed)
    done = False
    while not done:
        features.append(np.append(observation / OBSERVATION_SCALE, 1.0))
        probabilities = policy.probabilities(features[-1])
        actions.append(int(rng.choice(len(probabilities), p=probabilities)))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        rewards.append(float(reward))
        done = terminated or truncated
    return np.array(features), np.array(actions), np.array(rewards)


def returns_to_go(rewards: Array) -> Array:
    """Return the discounted sum of rewards from each step on, scaled to at most the largest reward."""
    returns = np.zeros(len(rewards))
    following = 0.0
    for step in reversed(range(len(rewards))):
        following = (1 - DISCOUNT) * rewards[step] + DISCOUNT * following
        returns[step] = following
    return returns


def train(
    env: gymnasium.Env[Any, Any], *, episodes: int, seed: int, on_episode: OnEpisode | None = None
) -> list[float]:
    """Train a new policy in the environment and return the return of each episode."""
    rng = np.random.default_rng(seed)
    policy = Policy(features=len(OBSERVATION_SCALE) + 1, actions=2)
    episode_returns: list[float] = []
    batch: list[tuple[Array, Array, Array]] = []
    for index in range(episodes):
        features, actions, rewards = play(env, policy, rng, seed if index == 0 else None)
        batch.append((features, actions, returns_to_go(rewards)))
        if len(batch) == EPISODES_PER_UPDATE:
            policy.learn(*(np.concatenate(column) for column in zip(*batch, strict=True)))
            batch.clear()
        episode_returns.append(float(rewards.sum()))
        if on_episode is not None:
            on_episode(index, episode_returns[-1])
    return episode_returns


def print_progress(index: int, return_: float) -> None:
    """Print a line each 50 episodes."""
    RECENT.append(return_)
    if (index + 1) % 50 == 0:
        print(f"episode {index + 1:4d}  mean return {np.mean(RECENT):5.1f}", flush=True)


def main(argv: Sequence[str] | None = None, *, on_episode: OnEpisode = print_progress) -> None:
    """Train the agent and record its episodes in a file."""
    parser = argparse.ArgumentParser(description="Train a CartPole agent and record its episodes.")
    parser.add_argument("--episodes", type=int, default=300, help="episodes to play (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/cartpole.jsonl", help="file to write (default: %(default)s)")
    parser.add_argument(
        "--to", help="an OTLP receiver that also gets the episodes, such as http://localhost:4318"
    )
    args = parser.parse_args(argv)

    config = {
        "episodes": args.episodes,
        "discount": DISCOUNT,
        "learning_rate": LEARNING_RATE,
        "episodes_per_update": EPISODES_PER_UPDATE,
    }
    transports = [f"file://{args.out}", *([args.to] if args.to else [])]
    with mttp.configure(transport=transports, run="cartpole", seed=args.seed, config=config):
        env = gymnasium.make("CartPole-v1")
        mttp.instrument(env)  # the one added line
        train(env, episodes=args.episodes, seed=args.seed, on_episode=on_episode)
        env.close()


if __name__ == "__main__":
    main()
