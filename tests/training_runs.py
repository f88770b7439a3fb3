"""Training runs, healthy or with a disease, recorded through the public interface."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

import mttp

Change: TypeAlias = Callable[[SimpleNamespace, float, np.random.Generator], None]
"""Changes the facts of an episode or an update; the float is training time from 0 to 1."""

UPDATES, GROUPS, SIZE = 25, 3, 4
TASKS = 30
WORDS = np.array([a + b for a in ("ba", "ke", "li", "mo", "nu", "pra", "sto") for b in "abcdefghij"])


def record(
    path: Path | str,
    seed: int,
    *,
    episode: Change | None = None,
    update: Change | None = None,
    updates: int = UPDATES,
) -> str:
    """Record a run in which the success rate rises from 0.25 to 0.75; return its path."""
    rng = np.random.default_rng(seed)
    with mttp.configure(f"file://{path}", run_id=f"run-{seed}"):
        for index in range(updates):
            time = index / (updates - 1)
            groups = [_group(f"{index}-{place}", index, time, rng, episode) for place in range(GROUPS)]
            facts = _update(time, rng)
            if update is not None:
                update(facts, time, rng)
            mttp.update(index, groups=groups, **vars(facts))
    return str(path)


def _group(name: str, index: int, time: float, rng: np.random.Generator, change: Change | None) -> Any:
    task = int(rng.integers(TASKS))
    facts = [_episode(task, time, rng) for _ in range(SIZE)]
    for one in facts:
        if change is not None:
            change(one, time, rng)
    with mttp.group(name, size=SIZE, normalization="mean_std", task=facts[0].task) as group:
        for one in facts:
            group.add(_recorded(one, index, group))
    return group


def _episode(task: int, time: float, rng: np.random.Generator) -> SimpleNamespace:
    success = bool(rng.random() < 0.25 + 0.5 * min(1.0, 1.25 * time))
    length = int(rng.integers(40, 80))
    logprobs = -rng.exponential(1.0, length)
    return SimpleNamespace(
        env="maths",
        task=f"t{task}",
        split="train",
        prompt=f"{' '.join(rng.permutation(WORDS)[:3])} {task_text(task)}",
        text=" ".join(rng.choice(WORDS, length)),
        ids=rng.integers(0, 5_000, length),
        logprobs=logprobs,
        ref_logprobs=logprobs + rng.normal(0, 0.05, length),
        success=success,
        reward=0.8 * success + 0.2 * rng.random(),
        audit=success + rng.normal(0, 0.3),
        regraded=None,
        truncated=False,
        stop_reason="stop",
        scoring={"grader": "verifier", "grader_version": "1"},
        version=None,
        error=None,
    )


@cache
def task_text(task: int) -> str:
    """Words of a task's own."""
    return " ".join(np.random.default_rng(10_000 + task).permutation(WORDS)[:25])


def _recorded(one: SimpleNamespace, index: int, group: Any) -> Any:
    facts = {"env": one.env, "task": one.task, "split": one.split, "group": group}
    with mttp.episode(**facts, policy_update_index=index - 1 if index else None) as episode:
        with episode.step() as step:
            step.observation(one.prompt)
            step.action(one.text)
            step.tokens(one.ids, logprobs=one.logprobs, ref_logprobs=one.ref_logprobs)
        if one.error is not None:
            episode.reward(None, status="error", error=one.error, **one.scoring)
        elif one.reward is not None:
            episode.reward(one.reward, **one.scoring)
        episode.end(
            outcome="success" if one.success else "failure",
            truncated=one.truncated,
            stop_reason=one.stop_reason,
        )
    if one.audit is not None:
        mttp.score(episode, one.audit, grader="audit", grader_kind="human")
    for value in one.regraded or ():
        mttp.score(episode, value, grader="verifier", grader_version="1")
    return episode


def _update(time: float, rng: np.random.Generator) -> SimpleNamespace:
    return SimpleNamespace(
        loss=float(rng.normal(0, 0.1)),
        kl=float(0.02 + 0.05 * time + abs(rng.normal(0, 0.01))),
        entropy=float(2.0 - 0.6 * time + rng.normal(0, 0.05)),
        lag=(0, 0.5, 1),
    )


# Diseases of episodes.


def hacked(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The reward rises by a loophole while the policy unlearns the task."""
    one.success = bool(rng.random() < 0.6 - 0.45 * time)
    one.audit = one.success + rng.normal(0, 0.3)
    one.reward = 0.3 * one.success + 0.7 * (rng.random() < time) + 0.05 * rng.random()


def long_winded(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Length is rewarded, and grows."""
    length = int(rng.integers(40, 80) * (1 + 2 * time))
    _lengthen(one, length, rng)
    one.success = bool(rng.random() < 0.4)
    one.audit = one.success + rng.normal(0, 0.3)
    one.reward = length / 240 + 0.1 * one.success


def _lengthen(one: SimpleNamespace, length: int, rng: np.random.Generator) -> None:
    one.text, one.ids = " ".join(rng.choice(WORDS, length)), rng.integers(0, 5_000, length)
    one.logprobs = -rng.exponential(1.0, length)
    one.ref_logprobs = one.logprobs + rng.normal(0, 0.05, length)


def jumping(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """A loophole is found at 60 % of the training time; the quality stays."""
    one.success = bool(rng.random() < 0.3)
    one.audit = one.success + rng.normal(0, 0.3)
    one.reward = 0.3 * one.success + 0.1 * rng.random() + 0.6 * (time > 0.6)


def perfect(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The grader is fooled in nearly every episode of the second half."""
    one.success = bool(rng.random() < 0.4)
    one.audit = one.success + rng.normal(0, 0.3)
    one.reward = 1.0 if time > 0.5 else float(one.success)


def misjudged(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The grader prefers failures."""
    one.reward = 0.8 * (not one.success) + 0.2 * rng.random()


def monotonous(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Every attempt fails, with one and the same reward."""
    one.success = False
    one.reward = 0.0 if time > 0.3 else float(rng.random() < 0.4)


def sparse(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """One episode in two hundred is rewarded."""
    one.success = bool(rng.random() < 0.005)
    one.reward = float(one.success)


def saturated(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Nothing is learned from a third of the run on."""
    one.success = True
    one.audit = 1 + rng.normal(0, 0.01) if time < 0.3 else 1.0
    one.reward = rng.random() * time if time < 0.3 else 1.0


def same_answers(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """In the second half all samples of a group are equal."""
    if time > 0.3:
        other = np.random.default_rng(round(time * 1000))
        one.ids = other.integers(0, 5_000, 60)
        one.text = " ".join(other.choice(WORDS, 60))
        one.logprobs = -rng.exponential(1.0, 60)
        one.ref_logprobs = one.logprobs


def looping(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Half of the late completions go in circles."""
    if time > 0.5 and rng.random() < 0.5:
        one.ids = np.tile(rng.integers(0, 5_000, 6), 12)
        one.logprobs = -rng.exponential(1.0, 72)
        one.ref_logprobs = one.logprobs


def cut_off(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """A limit ends a third of the late episodes, which then earn nothing."""
    if time > 0.5 and rng.random() < 0.35:
        one.truncated, one.stop_reason, one.success = True, "length", False
        one.reward, one.audit = 0.0, rng.normal(0, 0.3)


def failing_grader(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The judge times out in a tenth of the episodes."""
    if rng.random() < 0.1:
        one.error = "TimeoutError: the judge did not answer"


def noisy_grader(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The grader scores every trajectory three times, and rarely agrees with itself."""
    one.regraded = [one.reward + value for value in rng.normal(0, 0.6, 2)]
    one.reward += rng.normal(0, 0.6)


def steady_grader(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The grader scores every trajectory three times and agrees with itself."""
    one.regraded = [one.reward + value for value in rng.normal(0, 0.02, 2)]


def other_grader(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The grader is another version in the second half."""
    one.scoring = {"grader": "verifier", "grader_version": "2" if time > 0.5 else "1"}


def lenient_grader(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """There are few completions, and the same ones get more and more reward."""
    _answer(one, rng)
    one.reward = 0.3 * (one.ids[0] % 3) + 1.0 * time + 0.1 * rng.random()


def stable_answers(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """There are few completions, scored twice, and equal ones get equal rewards."""
    _answer(one, rng)
    one.reward = 0.3 * (one.ids[0] % 3) + 0.02 * rng.random()
    one.regraded = [one.reward + rng.normal(0, 0.01)]


def _answer(one: SimpleNamespace, rng: np.random.Generator) -> None:
    answer = int(rng.integers(3))
    one.text, one.ids = f"answer {answer}", np.full(50, answer)
    one.logprobs, one.ref_logprobs = np.full(50, -1.0), np.full(50, -1.0)


def forgetful(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """A quarter of the tasks are solved at first and not in the end."""
    if int(one.task[1:]) % 4 == 0:
        one.env = "geometry"
        one.success = bool(rng.random() < (0.9 if time < 0.5 else 0.1))
        one.audit = one.success + rng.normal(0, 0.3)
        one.reward = 0.8 * one.success + 0.2 * rng.random()


def shifted_tasks(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The first half has other environments than the second."""
    one.env = "maths" if rng.random() < (0.9 if time < 0.5 else 0.1) else "code"


def leaking(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Validation has the prompts of training, but for a number."""
    one.prompt = f"{task_text(int(one.task[1:]))} 3 apples"
    if rng.random() < 0.2:
        one.split = "validation"
        one.prompt = f"{task_text(int(one.task[1:]))} 3 apples" if rng.random() < 0.5 else one.prompt


def separate(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """Validation has prompts of its own."""
    if rng.random() < 0.2:
        one.split = "validation"
        one.task = f"v{one.task}"
        one.prompt = task_text(5_000 + int(rng.integers(100)))


# Diseases of updates.


def exploding_kl(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The divergence grows exponentially."""
    one.kl = float(0.01 * np.exp(6 * time) * rng.uniform(0.9, 1.1))


def collapsing_entropy(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The policy becomes deterministic."""
    one.entropy = float(2.0 * np.exp(-5 * time) * rng.uniform(0.9, 1.1))


def over_optimized(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """The quality rises and then falls, while the reward rises on."""
    chance = 0.2 + 1.2 * time if time < 0.5 else max(0.0, 1.6 - 1.6 * time)
    one.success = bool(rng.random() < chance)
    one.audit = one.success + rng.normal(0, 0.3)
    one.reward = time + 0.2 * rng.random()


# Healthy runs that record less.


def without_audit(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """A run whose episodes have outcomes and no late scores."""
    one.audit = None


def with_validation(one: SimpleNamespace, time: float, rng: np.random.Generator) -> None:
    """A fifth of the episodes is held out, and nothing else tells their quality."""
    one.audit = None
    separate(one, time, rng)
