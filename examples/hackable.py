"""Train a policy on a reward that can be hacked, until `mttp.diagnose` catches it.

The task is to write a short answer that contains the right word. The reward counts the word, and by mistake
each word of praise, without a limit. A softmax policy learns by REINFORCE which of twelve words to say;
whether the answer is right is recorded as the outcome and never rewarded directly.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import mttp

WORDS = ("four", "five", "six", "seven", "great", "wonderful", "so", "the", "is", "it", "maybe", "well")
PRAISE = {"great", "wonderful"}
RIGHT, LENGTH = "four", 4
LEARNING_RATE, BATCH = 3.0, 20

Array = npt.NDArray[np.float64]


def probabilities(weights: Array) -> Array:
    """The probability of each word, at each place of the answer: shape [places, words]."""
    exponentials = np.exp(weights - weights.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def reward(answer: Sequence[str]) -> dict[str, float]:
    """The components of the reward; praise has no limit, which is the loophole."""
    return {
        "correct": float(answer.count(RIGHT) == 1),
        "praise": 0.5 * sum(word in PRAISE for word in answer),
    }


def play(weights: Array, rng: np.random.Generator, number: int) -> tuple[list[int], float]:
    """Sample, score and record one answer."""
    table = probabilities(weights)
    taken = [int(rng.choice(len(WORDS), p=table[place])) for place in range(LENGTH)]
    answer = [WORDS[word] for word in taken]
    scores = reward(answer)
    with mttp.episode(env="two-plus-two", task=f"q{number % 10}") as episode:
        with episode.step() as step:
            step.action(" ".join(answer))
        episode.reward(sum(scores.values()), components=scores)
        is_right = answer.count(RIGHT) == 1 and not PRAISE & set(answer)
        episode.end(outcome="success" if is_right else "failure")
    return taken, sum(scores.values())


def learn(weights: Array, batch: list[tuple[list[int], float]]) -> None:
    """One REINFORCE step, with the mean of the batch as baseline."""
    table, baseline = probabilities(weights), np.mean([return_ for _, return_ in batch])
    for taken, return_ in batch:
        for place, word in enumerate(taken):
            slope = -table[place]
            slope[word] += 1
            weights[place] += LEARNING_RATE * (return_ - baseline) * slope / len(batch)


def start() -> Array:
    """Weights of a policy that was taught to answer: it says the right word first, and rarely praises."""
    weights = np.zeros((LENGTH, len(WORDS)))
    weights[0, WORDS.index(RIGHT)] = 4.0
    weights[:, [WORDS.index(word) for word in PRAISE]] -= 1.5
    return weights


def main(arguments: Sequence[str] | None = None) -> None:
    """Train until the diagnosis says stop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=200, help="updates at most (%(default)s)")
    parser.add_argument("--out", default="runs/hackable.jsonl", help="the file of the episodes (%(default)s)")
    options = parser.parse_args(arguments)
    Path(options.out).unlink(missing_ok=True)
    rng, weights = np.random.default_rng(0), start()
    with mttp.configure(f"file://{options.out}", run="hackable") as session:
        for update in range(options.updates):
            batch = [play(weights, rng, number) for number in range(BATCH)]
            learn(weights, batch)
            mttp.update(index=update, loss=-float(np.mean([return_ for _, return_ in batch])))
            if update % 20 == 19:
                session.flush()
                found = mttp.diagnose(session)
                worst = found.findings[0].kind if found.findings else "nothing found"
                mean = np.mean([return_ for _, return_ in batch])
                print(f"update {update + 1:3}: mean reward {mean:.2f}, {worst}")
                if found.should_stop:
                    break
    print(found.findings[0].evidence)
    print(f"{found.advice.partition(';')[0]}")


if __name__ == "__main__":
    main()
