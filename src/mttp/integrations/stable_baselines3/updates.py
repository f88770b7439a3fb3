"""Recording a model's updates from the numbers that it logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mttp.codec.plain import number
from mttp.codec.updates import logged_fields
from mttp.recording import training
from mttp.recording.open_episode import OpenEpisode

__all__ = ["ModelUpdates"]

_PREFIX = "train/"
_COUNT = "train/n_updates"
_NEGATIVE_ENTROPY = "train/entropy_loss"


class ModelUpdates:
    """
    Records one model's updates.

    For an on-policy algorithm, which learns once per rollout, an update is recorded per rollout.
    For other algorithms, which learn every few steps, an update is recorded once an episode has ended.
    """

    def __init__(self) -> None:
        self._count = 0
        self._index: int | None = None
        self._has_episode_ended = False

    def begin(self, model: Any) -> None:
        """Start from the model's number of updates before its first recorded training."""
        if self._index is None:
            self._count = int(model._n_updates)

    def policy(self) -> dict[str, Any]:
        """Return the facts about the policy for the start of an episode."""
        return {"policy_version": self._count, "policy_update_index": self._index}

    def end_facts(self) -> dict[str, Any]:
        """Return the facts about the policy for the end of an episode."""
        return {"policy_version_end": str(self._count)}

    def on_episode_end(self) -> None:
        """Note that an episode has ended."""
        self._has_episode_ended = True

    def record(
        self, model: Any, episodes: Sequence[OpenEpisode], *, policy: object, is_last: bool = False
    ) -> None:
        """Record an update if the model has learned since the last one."""
        is_on_policy = hasattr(model, "rollout_buffer")
        logged = model.logger.name_to_value
        count = int(logged.get(_COUNT, self._count))
        if count == self._count or not (is_on_policy or is_last or self._has_episode_ended):
            return
        numbers = {name: value for name, value in logged.items() if name.startswith(_PREFIX)}
        numbers = {name: found for name, value in numbers.items() if (found := number(value)) is not None}
        if _NEGATIVE_ENTROPY in numbers:
            numbers["entropy"] = -numbers.pop(_NEGATIVE_ENTROPY)
        numbers.pop(_COUNT, None)
        fields, others = logged_fields(numbers)
        metrics = {name.removeprefix(_PREFIX): value for name, value in others.items()}
        update = training.update(
            **fields,
            policy=policy,
            policy_version_before=self._count,
            policy_version_after=count,
            episodes=episodes if is_on_policy else (),
            metrics={"gradient_steps": float(count - self._count), **metrics},
        )
        self._count, self._index, self._has_episode_ended = count, update.index, False
