"""The groups of a batch: completions of one prompt, what they were paid, and their advantages."""

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
    """A batch as it was recorded, for the updates that learn from it."""

    launch: Launch
    """What the ids are made by."""
    version: int
    """Updates that the policy had had."""
    number: int
    """Position among the trainer's batches."""
    first: int
    """Which of all processes' completions is this process's first."""
    size: int
    """Completions in a group."""
    total: int
    """Completions of all processes."""
    episodes: list[Episode]
    """This process's, with no more than their identity."""
    masked: frozenset[int] = frozenset()
    """Those that the loss leaves out, by row."""
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
        paid = _paid(completions, places)
        recorded.groups[position] = training.group(
            completions.launch.group_id(recorded.number, position),
            [_member(completions, episodes, place) for place in places],
            size=size,
            rewards=[_stated(paid, place) for place in places],
            advantages=[_stated(advantages, place) for place in places],
            **facts,
        )
    return recorded


def _member(completions: Completions, episodes: Sequence[Episode], place: int) -> Episode | str:
    """An episode of this process's, or the trace id of another's."""
    row = place - completions.first
    if 0 <= row < len(episodes):
        return episodes[row]
    return completions.launch.trace_id(completions.batch.number, place)


def _stated(values: Mapping[int, float], place: int) -> float | None:
    found = values.get(place, math.nan)
    return None if math.isnan(found) else found


def _paid(completions: Completions, places: range) -> dict[int, float]:
    """What is compared, by place: where that is not known of all members, what they were paid."""
    rewards, first = completions.batch.rewards, completions.first
    if completions.trained is not None and first <= places.start and places.stop <= first + completions.count:
        return dict(enumerate(completions.trained.tolist(), start=first))
    return {} if rewards is None else dict(enumerate(combined(rewards, completions.scoring.weights).tolist()))


def _advantages(trainer: Any, completions: Completions, total: int) -> dict[int, float]:
    """Advantages by place; other processes' are those that TRL keeps for its table of completions."""
    kept = list(getattr(trainer, "_logs", {}).get("advantages", ()))[-total:]
    found = dict(enumerate(kept)) if completions.launch.processes > 1 and len(kept) == total else {}
    for row in range(completions.count):
        if (advantage := completions.advantage(row)) is not None:
            found[completions.first + row] = advantage
    return found


def _normalization(trainer: Any, completions: Completions) -> dict[str, Any]:
    """How advantages are made of rewards, in the convention's words where it has some."""
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
    """RLOO's way: what is compared are the rewards, clipped, less the divergence from the reference."""
    facts = {"beta": trainer.beta, "reward_clip_range": getattr(trainer, "reward_clip_range", None)}
    metadata = {name: value for name, value in facts.items() if value}
    scaled = bool(getattr(trainer, "normalize_advantages", False))
    if scaled:
        metadata["normalize_advantages"] = True
    scope = "batch" if scaled else "none"
    return {"normalization": "leave_one_out", "scope": scope, "metadata": metadata}
