"""Which rows of a rollout buffer are which episode's steps, and what it says of them once it is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mttp.recording import feedback
from mttp.recording.open_episode import OpenEpisode

__all__ = ["Rollout"]


@dataclass(slots=True)
class _StepRange:
    """Steps of one episode that follow each other in the buffer."""

    episode: OpenEpisode
    env: int
    """The buffer's column."""
    row: int
    """The buffer's row of the first of them."""
    first: int
    """The index of the first of them in the episode."""
    count: int = 1


class Rollout:
    """One rollout of an on-policy algorithm; rows count from 0."""

    def __init__(self) -> None:
        self._rewards: list[Any] = []
        self._stretches: list[_StepRange] = []
        self._last: dict[int, _StepRange] = {}

    @property
    def episodes(self) -> list[OpenEpisode]:
        """The episodes that have steps in it, each once."""
        return list({stretch.episode.trace_id: stretch.episode for stretch in self._stretches}.values())

    def next(self, rewards: Any) -> None:
        """A row begins, with what the environments paid, shape [environments]."""
        self._rewards.append(rewards.copy())

    def add(self, env: int, episode: OpenEpisode, index: int) -> None:
        """The row's step in that environment is this step of this episode."""
        last = self._last.get(env)
        if last is not None and last.episode is episode and last.first + last.count == index:
            last.count += 1
            return
        stretch = self._last[env] = _StepRange(episode, env, len(self._rewards) - 1, index)
        self._stretches.append(stretch)

    def state(self, buffer: Any) -> None:
        """State what the full buffer says of each step, its arrays of the shape [rows, environments]."""
        paid = np.array(self._rewards)
        trained = buffer.rewards[: len(paid)]
        changed = np.where(trained != paid.astype(trained.dtype), trained, np.nan)
        for stretch in self._stretches:
            rows = slice(stretch.row, stretch.row + stretch.count), stretch.env
            numbers = {"advantage": buffer.advantages[rows], "return_target": buffer.returns[rows]}
            if not np.isnan(changed[rows]).all():
                numbers["trained_reward"] = changed[rows]
            feedback.annotate((stretch.episode, stretch.first), "steps", numbers, by="stable-baselines3")
