"""Which episodes of a recording are asked for, by the words that they answer to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from mttp.model.episodes import Episode

__all__ = ["Words", "matches"]

Words: TypeAlias = "str | Collection[str] | None"
"""One word, several of which any may be, or None where it does not matter."""


def matches(episode: Episode, asked: Mapping[str, Words], run_names: Mapping[str, str | None]) -> bool:
    """Whether an episode answers to a word of each question; `run_names` has the names of runs by id."""
    return all(
        not _answers(episode, question, run_names).isdisjoint([words] if isinstance(words, str) else words)
        for question, words in asked.items()
        if words is not None
    )


def _answers(episode: Episode, question: str, run_names: Mapping[str, str | None]) -> set[str | None]:
    if question == "run":
        return {episode.run_id, run_names.get(episode.run_id)}
    if question == "reward_status":
        return {episode.reward.status}
    if question == "spec":
        spec = episode.reward.spec
        return set() if spec is None else {spec.name, f"{spec.name}@{spec.version}"}
    return {getattr(episode, question)}
