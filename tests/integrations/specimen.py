"""
Two plays that every integration is shown: what was played, told by hand, and what a recording tells of it.

A test gives `PLAYS` to an environment of its library and expects `told(episode)` to be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mttp

__all__ = ["PLAYS", "Play", "Turn", "told"]


@dataclass(frozen=True)
class Turn:
    """What a policy saw and did, and what came of it."""

    observation: Any
    action: Any
    reward: float | None
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class Play:
    """One episode, turn by turn."""

    turns: tuple[Turn, ...]
    last: Any = None
    """What was shown after the last action."""
    seed: int | None = field(default=None, compare=False)

    @property
    def total(self) -> float:
        """What all turns paid."""
        return sum(turn.reward or 0.0 for turn in self.turns)


PLAYS = (
    Play(
        turns=(
            Turn([0.0, 0.0], 1, 0.5),
            Turn([0.0, 1.0], 0, -1.25),
            Turn([0.0, 2.0], 1, 0.1, terminated=True),
        ),
        last=[0.0, 3.0],
    ),
    Play(
        turns=(Turn([1.0, 0.0], 0, 0.0), Turn([1.0, 1.0], 0, 2.0, truncated=True)),
        last=[1.0, 2.0],
    ),
)
"""A play that terminates, and one that is cut off."""


def told(episode: mttp.Episode) -> Play:
    """What a recorded episode says was played."""
    turns = (
        Turn(
            plain(step.observation),
            plain(step.action),
            step.reward,
            bool(step.terminated),
            bool(step.truncated),
        )
        for step in episode.steps
    )
    return Play(tuple(turns), plain(episode.final_observation), _number(episode.seed))


def _number(seed: int | str | None) -> int | None:
    return None if seed is None else int(seed)


def plain(value: Any) -> Any:
    """Arrays as lists."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def started(session: mttp.Session) -> list[mttp.Episode]:
    """The episodes in the order in which they were started, those of one moment included."""
    return sorted(mttp.read(session), key=lambda episode: episode.index or 0)


def by_env(session: mttp.Session) -> list[list[Play]]:
    """What was played in each environment of a vector, in order."""
    episodes = started(session)
    count = 1 + max((episode.env_index or 0 for episode in episodes), default=-1)
    return [[told(episode) for episode in episodes if episode.env_index == index] for index in range(count)]


def only(session: mttp.Session) -> mttp.Episode:
    """The one episode that was recorded."""
    (episode,) = mttp.read(session).episodes
    return episode
