"""Train a numpy policy to add with GRPO; record groups, updates and a later score.

The policy samples eight answers per prompt, and their rewards are compared within the group.
A group whose rewards are all equal has no gradient; it is recorded as discarded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import mttp

DIGITS = 4
GROUP_SIZE = 8
GROUPS_PER_UPDATE = 4
LEARNING_RATE = 4.0

Array = npt.NDArray[np.float64]


class Policy:
    """A table of logits: one row per prompt, one column per answer."""

    def __init__(self) -> None:
        self.logits = np.zeros((DIGITS * DIGITS, 2 * DIGITS - 1))
        self.version = 0

    def logprobs(self, prompt: int) -> Array:
        """Return the log probability of each answer."""
        shifted = self.logits[prompt] - self.logits[prompt].max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    def learn(self, samples: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
        """Make answers with an advantage more likely; return the loss and the norm of the gradient."""
        gradient, loss = np.zeros_like(self.logits), 0.0
        for prompt, answer, advantage in samples:
            logprobs = self.logprobs(prompt)
            loss -= advantage * float(logprobs[answer]) / len(samples)
            gradient[prompt] -= advantage * (np.eye(len(logprobs))[answer] - np.exp(logprobs)) / len(samples)
        self.logits -= LEARNING_RATE * gradient
        self.version += 1
        return loss, float(np.linalg.norm(gradient))


def sample(
    policy: Policy, rng: np.random.Generator, group: mttp.recording.OpenGroup, prompt: int
) -> tuple[int, float]:
    """Run one episode; return the answer and its reward."""
    left, right = divmod(prompt, DIGITS)
    facts: dict[str, Any] = {
        "policy": "table",
        "policy_version": policy.version,
        "policy_update_index": policy.version - 1,
    }
    with mttp.episode(env="addition", task=f"{left}+{right}", group=group, **facts) as episode:
        with episode.step() as step:
            logprobs = policy.logprobs(prompt)
            answer = int(rng.choice(len(logprobs), p=np.exp(logprobs)))
            step.observation(f"{left}+{right}=?")
            step.action(str(answer))
            step.tokens(ids=[answer], logprobs=[logprobs[answer]], prompt_ids=[left, right])
        correct = float(answer == left + right)
        near = float(abs(answer - left - right) <= 1)
        reward = 0.8 * correct + 0.2 * near
        episode.reward(
            reward, components={"correct": correct, "near": near}, weights={"correct": 0.8, "near": 0.2}
        )
        episode.end(terminated=True, outcome="success" if correct else "failure")
    group.add(episode)
    return answer, reward


def train(policy: Policy, rng: np.random.Generator, *, updates: int) -> list[float]:
    """Train for a number of updates and return the reward of each sample."""
    rewards: list[float] = []
    for index in range(updates):
        useful, learned, flat = [], [], 0
        for prompt in rng.integers(len(policy.logits), size=GROUPS_PER_UPDATE):
            with mttp.group(size=GROUP_SIZE, normalization="mean_std") as group:
                answers = [sample(policy, rng, group, int(prompt)) for _ in range(GROUP_SIZE)]
            rewards += [reward for _, reward in answers]
            if group.value.reward_std:
                useful.append(group)
                advantages = zip(answers, group.value.advantages, strict=True)
                learned += [(int(prompt), answer, float(advantage)) for (answer, _), advantage in advantages]
            else:
                flat += GROUP_SIZE
        loss, norm = policy.learn(learned) if learned else (0.0, 0.0)
        mttp.update(
            index,
            loss=loss,
            grad_norm=norm,
            learning_rate=LEARNING_RATE,
            policy_version_after=str(policy.version),
            groups=useful,
            discarded={"zero_variance": flat} if flat else None,
        )
    return rewards


def main(argv: Sequence[str] | None = None) -> None:
    """Train the policy, record everything, and print the recording."""
    parser = argparse.ArgumentParser(description="Train a policy to add with GRPO.")
    parser.add_argument("--updates", type=int, default=60, help="updates to make (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/grpo.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    with mttp.configure(f"file://{args.out}", run="grpo", seed=args.seed, algorithm="grpo") as session:
        rewards = train(Policy(), np.random.default_rng(args.seed), updates=args.updates)
        last = mttp.read(session).episodes[-1]
        mttp.score(
            last, 1.0 if last.outcome == "success" else 0.0, grader="second-look", explanation="checked again"
        )

    recording = mttp.read(args.out)
    window = max(1, len(rewards) // 4)
    print(f"{recording!r}")
    print(
        f"mean reward {np.mean(rewards[:window]):.2f} at first, {np.mean(rewards[-window:]):.2f} at the end"
    )
    discarded = sum(sum(update.discarded.values()) for update in recording.updates)
    print(f"{discarded} episodes were in groups with equal rewards")
    scores = {grader: score.value for grader, score in recording.episodes[-1].scores.items()}
    print(f"scores of the last episode: {scores}")


if __name__ == "__main__":
    main()
