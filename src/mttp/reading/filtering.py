"""Selects episodes by values of their fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from mttp.model.episodes import Episode

__all__ = ["Words", "matches"]

Words: TypeAlias = "str | Collection[str] | None"
"""A value, several values of which any may match, or None to match every episode."""


def matches(episode: Episode, wanted: Mapping[str, Words], run_names: Mapping[str, str | None]) -> bool:
    """Whether an episode matches every filter of `wanted`, by field; `run_names` maps run ids to names."""
    return all(
        not _values(episode, field, run_names).isdisjoint([words] if isinstance(words, str) else words)
        for field, words in wanted.items()
        if words is not None
    )


def _values(episode: Episode, field: str, run_names: Mapping[str, str | None]) -> set[str | None]:
    if field == "run":
        return {episode.run_id, run_names.get(episode.run_id)}
    if field == "reward_status":
        return {episode.reward.status}
    if field == "spec":
        spec = episode.reward.spec
        return set() if spec is None else {spec.name, f"{spec.name}@{spec.version}"}
    return {getattr(episode, field)}
