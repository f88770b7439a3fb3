"""Recordings with a little of everything, written into the working directory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from specimen import EVERYTHING

import mttp

__all__ = ["record_environment", "record_everything", "record_training"]


class Walk(gymnasium.Env[Any, Any]):
    """A walk of six steps."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        """At the beginning."""
        self.at = 0
        return np.array([0.0, 0.5]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One further."""
        self.at += 1
        return np.array([self.at, 0.5]), 0.5 * self.at, self.at == 6, False, {"level": self.at}


def record_everything() -> None:
    """One episode with a little of every part of the vocabulary; scorings of many parts are left out."""
    agents = tuple(replace(agent, reward=mttp.Reward(), rewards=()) for agent in EVERYTHING.agents)
    with mttp.configure("file://everything.jsonl") as session:
        session.record(replace(EVERYTHING, rewards=EVERYTHING.rewards[:2], agents=agents))


def record_training() -> None:
    """Groups, updates, late facts and an evaluation."""
    with mttp.configure("file://training.jsonl"):
        group = mttp.group("g", size=2)
        for number in range(2):
            with mttp.episode(env="toy", task=f"t{number}", group="g", policy="tiny") as episode:
                with episode.step() as step:
                    step.tokens([1, 2, 3], logprobs=[-0.5, -0.25, -1.0])
                    step.reward(0.5)
                episode.reward(number, components={"right": number})
                episode.end(terminated=True, outcome="success")
            group.add(episode)
        mttp.update(1, groups=[group], loss=0.5)
        mttp.score(episode, 0.75, grader="later")
        mttp.annotate(episode, "label", "odd")
        with mttp.evaluate("suite", tasks=["a"]) as evaluation:
            evaluation.result("a", 0.5, passed=True)


def record_environment() -> None:
    """Steps in columns."""
    with mttp.configure("file://environment.jsonl"):
        env = mttp.wrap(Walk())
        for _ in range(2):
            env.reset()
            while not env.step(1)[2]:
                pass
        env.close()
