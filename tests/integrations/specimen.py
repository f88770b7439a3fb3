"""
The specimen of every integration: two episodes, or four completions, and how a recording of them reads.

A test gives `PLAYS` to an environment of its library and expects `told(episode)` to equal them.
A model server responds with `COMPLETIONS`, and a test expects `completed(episode, decode)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mttp

__all__ = ["COMPLETIONS", "PLAYS", "Completion", "Play", "Turn", "completed", "told"]


@dataclass(frozen=True)
class Turn:
    """What a policy observed and did, and the result."""

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
        """Return the sum of the rewards."""
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


@dataclass(frozen=True)
class Completion:
    """A prompt and a completion, with one token per character and an end token, and its reward."""

    prompt: str
    text: str
    paid: float | None
    ended: bool
    """Whether it ended by itself; else it was cut off."""
    logprobs: tuple[float, ...] | None
    """One per token; None if they are unknown."""


COMPLETIONS = (
    Completion("2+2=", "4", 1.0, ended=True, logprobs=(-0.25, -0.5)),
    Completion("2+2=", "5!", 0.0, ended=True, logprobs=(-2.0, -0.125, -0.0)),
    Completion("2+2=", "four", None, ended=True, logprobs=(-1.0, -0.5, -0.5, -0.5, -4.0)),
    Completion("2+2=", "4444", 0.1, ended=False, logprobs=(-0.25, -3.0, -3.5, -3.75)),
)
"""One right answer, one wrong, one that can't be judged, and one that is cut off."""


def pay(prompt: str, text: str) -> float | None:
    """Return the reward of a completion."""
    (found,) = (each for each in COMPLETIONS if (each.prompt, each.text) == (prompt, text))
    return found.paid


def encode(completion: Completion) -> list[int]:
    """Return the tokens, for models without tokens of their own."""
    return [*map(ord, completion.text), *([1] if completion.ended else [])]


def decode(ids: list[int]) -> str:
    """Return the text of the tokens."""
    return "".join(chr(id) for id in ids if id != 1)


def completed(episode: mttp.Episode, decode: Callable[[list[int]], str] = decode) -> Completion:
    """Return the prompt, completion and tokens of a recorded episode of one step."""
    (step,) = episode.steps
    tokens = step.tokens
    assert tokens is not None
    in_tokens = decode(tokens.prompt_ids.tolist()), decode(tokens.ids.tolist())
    assert in_tokens == (step.observation, step.action)
    assert (episode.terminated, bool(episode.truncated)) != (True, True)
    return Completion(
        prompt=step.observation,
        text=step.action,
        paid=None if episode.reward is None else episode.reward.value,
        ended=bool(episode.terminated),
        logprobs=None if tokens.logprobs is None else tuple(tokens.logprobs.tolist()),
    )


def told(episode: mttp.Episode) -> Play:
    """Return a recorded episode as turns."""
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
    """Return a value with its arrays as lists."""
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def started(session: mttp.Session) -> list[mttp.Episode]:
    """Return the episodes in order of start, by index."""
    return sorted(mttp.read(session), key=lambda episode: episode.index or 0)


def by_env(session: mttp.Session) -> list[list[Play]]:
    """Return the episodes of each environment of a vector, in order."""
    episodes = started(session)
    count = 1 + max((episode.env_index or 0 for episode in episodes), default=-1)
    return [[told(episode) for episode in episodes if episode.env_index == index] for index in range(count)]


def only(session: Any) -> mttp.Episode:
    """Return the only recorded episode."""
    (episode,) = mttp.read(session).episodes
    return episode
