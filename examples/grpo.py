"""Teach a numpy policy to add with groups of samples (GRPO); record groups, updates and a second opinion.

Each prompt is answered by eight samples; what they earn is compared within the group.
A group whose samples all earn the same teaches nothing and is discarded, and the recording says so.
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
    """Play one episode: answer the prompt, be paid; return the answer and what it earned."""
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
        paid = 0.8 * correct + 0.2 * near
        episode.reward(
            paid, components={"correct": correct, "near": near}, weights={"correct": 0.8, "near": 0.2}
        )
        episode.end(terminated=True, outcome="success" if correct else "failure")
    group.add(episode)
    return answer, paid


def train(policy: Policy, rng: np.random.Generator, *, updates: int) -> list[float]:
    """Train for a number of updates and return what each sample earned."""
    earned: list[float] = []
    for index in range(updates):
        useful, learned, flat = [], [], 0
        for prompt in rng.integers(len(policy.logits), size=GROUPS_PER_UPDATE):
            with mttp.group(size=GROUP_SIZE, normalization="mean_std") as group:
                answers = [sample(policy, rng, group, int(prompt)) for _ in range(GROUP_SIZE)]
            earned += [paid for _, paid in answers]
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
    return earned


def main(argv: Sequence[str] | None = None) -> None:
    """Train the policy, record everything, and read it back."""
    parser = argparse.ArgumentParser(description="Teach a policy to add, by groups of samples.")
    parser.add_argument("--updates", type=int, default=60, help="updates to make (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: %(default)s)")
    parser.add_argument("--out", default="runs/grpo.jsonl", help="file to write (default: %(default)s)")
    args = parser.parse_args(argv)

    with mttp.configure(f"file://{args.out}", run="grpo", seed=args.seed, algorithm="grpo") as session:
        earned = train(Policy(), np.random.default_rng(args.seed), updates=args.updates)
        last = mttp.read(session).episodes[-1]
        mttp.score(
            last, 1.0 if last.outcome == "success" else 0.0, grader="second-look", explanation="checked again"
        )

    recording = mttp.read(args.out)
    window = max(1, len(earned) // 4)
    print(f"{recording!r}")
    print(f"mean reward {np.mean(earned[:window]):.2f} at first, {np.mean(earned[-window:]):.2f} in the end")
    discarded = sum(sum(update.discarded.values()) for update in recording.updates)
    print(f"{discarded} episodes were in groups that earned the same throughout")
    scores = {grader: score.value for grader, score in recording.episodes[-1].scores.items()}
    print(f"the last episode is given {scores}")


if __name__ == "__main__":
    main()
