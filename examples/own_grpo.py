"""A GRPO loop of your own: five added lines record its rollouts, rewards, groups, advantages and updates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import mttp

RNG = np.random.default_rng(0)
LOGITS = np.zeros((16, 7))
"""The policy: a row of logits per prompt; each prompt asks for the sum of two digits below 4."""


def probabilities(prompt: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the probability of each answer."""
    weights = np.exp(LOGITS[prompt] - LOGITS[prompt].max())
    return np.asarray(weights / weights.sum())


@mttp.instrument(records="reward")  # added: the result is the reward of the current episode
def correct(prompt: int, answer: int) -> float:
    """Return 1 if the answer is the sum, else 0."""
    return float(answer == sum(divmod(prompt, 4)))


@mttp.instrument(records="episode")  # added: each call is an episode
def rollout(prompt: int) -> tuple[int, float, mttp.recording.OpenEpisode]:
    """Sample an answer to a prompt."""
    answer = int(RNG.choice(7, p=probabilities(prompt)))
    return answer, correct(prompt, answer), mttp.current_episode()


def main(argv: Sequence[str] | None = None) -> None:
    """Train, record everything, and print the recording."""
    parser = argparse.ArgumentParser(description="Train a policy to add, with your own GRPO loop.")
    parser.add_argument("--updates", type=int, default=200, help="updates to make (default: %(default)s)")
    parser.add_argument("--out", default="runs/own.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    with mttp.configure(f"file://{args.out}", run="own-grpo", algorithm="grpo"):  # added
        for update in range(args.updates):
            prompt = int(RNG.integers(16))
            samples = [rollout(prompt) for _ in range(8)]
            rewards = np.array([reward for _, reward, _ in samples])
            advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            group = mttp.group(f"{update}", [one for *_, one in samples], advantages=advantages)  # added
            for (answer, *_), advantage in zip(samples, advantages, strict=True):
                LOGITS[prompt] += 0.5 * advantage * ((np.arange(7) == answer) - probabilities(prompt))
            mttp.update(update, groups=[group], learning_rate=0.5)  # added

    recording = mttp.read(args.out)
    print(repr(recording))
    returns = [episode.return_ or 0.0 for episode in recording]
    quarter = len(returns) // 4
    print(
        f"mean reward {np.mean(returns[:quarter]):.2f} at first, {np.mean(returns[-quarter:]):.2f} at the end"
    )
    last = recording.episodes[-1]
    print(last.env, last.inputs["prompt"], last.reward.grader, last.return_, last.group, last.consumed_by)


if __name__ == "__main__":
    main()
