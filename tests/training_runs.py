"""Training runs, healthy or with a disease, recorded through the public interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

import mttp

Change: TypeAlias = Callable[[SimpleNamespace, float, np.random.Generator], None]
"""Changes the facts of an episode or an update; the float is training time from 0 to 1."""

UPDATES, GROUPS, SIZE = 25, 3, 4
TASKS = 30
WORDS = [f"{first}{second}" for first in ("ba", "ke", "li", "mo", "nu", "pra", "sto") for second in "abcdefghij"]


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
        confidence=None,
        scoring={"grader": "verifier", "grader_version": "1"},
        version=None,
        error=None,
    )


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
        if one.confidence is not None:
            episode.metric("confidence", one.confidence)
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
