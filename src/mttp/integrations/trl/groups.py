"""Recording the groups of a batch: completions of one prompt, their rewards and advantages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mttp.integrations.trl import trainers
from mttp.integrations.trl.completions import Completions
from mttp.integrations.trl.launch import Launch
from mttp.integrations.trl.scoring import combined
from mttp.model.episodes import Episode
from mttp.recording import training
from mttp.recording.open_group import OpenGroup

__all__ = ["RecordedBatch", "record"]


@dataclass(slots=True)
class RecordedBatch:
    """A recorded batch, for the updates that learn from it."""

    launch: Launch
    """Derives the ids of groups and episodes."""
    version: int
    """The number of updates before the batch."""
    number: int
    """The index among the trainer's batches."""
    first: int
    """The index of this process's first completion among those of all processes."""
    size: int
    """The number of completions in a group."""
    total: int
    """The number of completions of all processes."""
    episodes: list[Episode]
    """This process's episodes, reduced to their identity and reward."""
    masked: frozenset[int] = frozenset()
    """The rows of completions that the loss leaves out."""
    groups: dict[int, OpenGroup] = field(default_factory=dict)
    """The groups that this process recorded, by position."""


def record(trainer: Any, completions: Completions, episodes: list[Episode]) -> RecordedBatch:
    """Record the groups whose first member is among these episodes."""
    count, size, first = completions.count, completions.size, completions.first
    total = count * completions.launch.processes
    recorded = RecordedBatch(
        launch=completions.launch,
        version=completions.batch.version,
        number=completions.batch.number,
        first=first,
        size=size,
        total=total,
        episodes=episodes,
        masked=frozenset(row for row in range(count) if completions.tensors.is_masked(row)),
    )
    advantages = _advantages(trainer, completions, total)
    facts = _normalization(trainer, completions) if advantages else {}
    for position in range(math.ceil(first / size), math.ceil((first + count) / size)):
        places = range(position * size, min((position + 1) * size, total))
        rewards = _compared_rewards(completions, places)
        recorded.groups[position] = training.group(
            completions.launch.group_id(recorded.number, position),
            [_member(completions, episodes, place) for place in places],
            size=size,
            rewards=[_known(rewards, place) for place in places],
            advantages=[_known(advantages, place) for place in places],
            **facts,
        )
    return recorded


def _member(completions: Completions, episodes: Sequence[Episode], place: int) -> Episode | str:
    """Return an episode of this process, or the trace id of another process's episode."""
    row = place - completions.first
    if 0 <= row < len(episodes):
        return episodes[row]
    return completions.launch.trace_id(completions.batch.number, place)


def _known(values: Mapping[int, float], place: int) -> float | None:
    value = values.get(place, math.nan)
    return None if math.isnan(value) else value


def _compared_rewards(completions: Completions, places: range) -> dict[int, float]:
    """
    Return the rewards that a group's advantages compare, by place.

    RLOO's adjusted rewards are used only if this process has all members of the group.
    """
    rewards, first = completions.batch.rewards, completions.first
    if completions.trained is not None and first <= places.start and places.stop <= first + completions.count:
        return dict(enumerate(completions.trained.tolist(), start=first))
    return {} if rewards is None else dict(enumerate(combined(rewards, completions.scoring.weights).tolist()))


def _advantages(trainer: Any, completions: Completions, total: int) -> dict[int, float]:
    """Return advantages by place; those of other processes come from TRL's log of completions."""
    logged = list(getattr(trainer, "_logs", {}).get("advantages", ()))[-total:]
    advantages = dict(enumerate(logged)) if completions.launch.processes > 1 and len(logged) == total else {}
    for row in range(completions.count):
        if (advantage := completions.advantage(row)) is not None:
            advantages[completions.first + row] = advantage
    return advantages


def _normalization(trainer: Any, completions: Completions) -> dict[str, Any]:
    """Return how advantages are computed from rewards, as arguments for a group."""
    if trainers.family(trainer) == "rloo":
        return _leave_one_out(trainer)
    how = str(getattr(trainer, "multi_objective_aggregation", "sum_then_normalize"))
    if how != "sum_then_normalize":
        return {"metadata": {"multi_objective_aggregation": how}}
    scope = str(trainer.scale_rewards)
    if scope == "none":
        return {"normalization": "mean", "scope": scope}
    facts: dict[str, Any] = {"normalization": "mean_std", "scope": scope}
    if scope == "batch" and completions.batch.rewards is not None:
        rewards = combined(completions.batch.rewards, completions.scoring.weights)
        with np.errstate(all="ignore"):
            known = np.isfinite(rewards).sum() > 1
            facts["reward_std"] = float(np.nanstd(rewards, ddof=1)) if known else None
    return facts


def _leave_one_out(trainer: Any) -> dict[str, Any]:
    """Return how RLOO computes advantages: from clipped rewards minus the divergence from the reference."""
    facts = {"beta": trainer.beta, "reward_clip_range": getattr(trainer, "reward_clip_range", None)}
    metadata = {name: value for name, value in facts.items() if value}
    scaled = bool(getattr(trainer, "normalize_advantages", False))
    if scaled:
        metadata["normalize_advantages"] = True
    scope = "batch" if scaled else "none"
    return {"normalization": "leave_one_out", "scope": scope, "metadata": metadata}
