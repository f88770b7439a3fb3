"""Assigning the rows of a rollout buffer to steps of episodes, and annotating these steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mttp.recording import feedback
from mttp.recording.open_episode import OpenEpisode

__all__ = ["Rollout"]


@dataclass(slots=True)
class _StepRange:
    """Consecutive steps of one episode in the buffer."""

    episode: OpenEpisode
    env: int
    """The buffer's column."""
    row: int
    """The buffer's row of the first step."""
    first: int
    """The index of the first step in the episode."""
    count: int = 1


class Rollout:
    """One rollout; rows count from 0."""

    def __init__(self) -> None:
        self._rewards: list[Any] = []
        self._ranges: list[_StepRange] = []
        self._last: dict[int, _StepRange] = {}

    @property
    def episodes(self) -> list[OpenEpisode]:
        """The episodes with steps in the rollout, each once."""
        return list({steps.episode.trace_id: steps.episode for steps in self._ranges}.values())

    def next(self, rewards: Any) -> None:
        """Start a row with the environments' rewards, shape [environments]."""
        self._rewards.append(rewards.copy())

    def add(self, env: int, episode: OpenEpisode, index: int) -> None:
        """Assign the current row's step of an environment to a step of an episode."""
        last = self._last.get(env)
        if last is not None and last.episode is episode and last.first + last.count == index:
            last.count += 1
            return
        steps = self._last[env] = _StepRange(episode, env, len(self._rewards) - 1, index)
        self._ranges.append(steps)

    def annotate(self, buffer: Any) -> None:
        """
        Record the buffer's advantages, return targets and changed rewards on the steps.

        The buffer's arrays have the shape [rows, environments].
        """
        rewards = np.array(self._rewards)
        trained = buffer.rewards[: len(rewards)]
        changed = np.where(trained != rewards.astype(trained.dtype), trained, np.nan)
        for steps in self._ranges:
            rows = slice(steps.row, steps.row + steps.count), steps.env
            numbers = {"advantage": buffer.advantages[rows], "return_target": buffer.returns[rows]}
            if not np.isnan(changed[rows]).all():
                numbers["trained_reward"] = changed[rows]
            feedback.annotate((steps.episode, steps.first), "steps", numbers, by="stable-baselines3")
