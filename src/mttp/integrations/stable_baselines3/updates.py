"""Recording a model's updates from the numbers that it logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mttp.codec.plain import number
from mttp.recording import training
from mttp.recording.open_episode import OpenEpisode

__all__ = ["ModelUpdates"]

_PREFIX = "train/"
_COUNT = "train/n_updates"
_NAMES = {
    "train/loss": "loss",
    "train/approx_kl": "kl",
    "train/learning_rate": "learning_rate",
    "train/clip_fraction": "clip_fraction",
    "train/policy_gradient_loss": "policy_loss",
    "train/policy_loss": "policy_loss",
    "train/actor_loss": "policy_loss",
    "train/value_loss": "value_loss",
    "train/critic_loss": "value_loss",
    "train/explained_variance": "explained_variance",
}
"""Fields of an update by the library's names; other numbers are metrics."""
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
        fields: dict[str, Any] = {
            field: numbers.pop(name) for name, field in _NAMES.items() if name in numbers
        }
        if _NEGATIVE_ENTROPY in numbers:
            fields["entropy"] = -numbers.pop(_NEGATIVE_ENTROPY)
        numbers.pop(_COUNT, None)
        metrics = {name.removeprefix(_PREFIX): value for name, value in numbers.items()}
        update = training.update(
            **fields,
            policy=policy,
            policy_version_before=self._count,
            policy_version_after=count,
            episodes=episodes if is_on_policy else (),
            metrics={"gradient_steps": float(count - self._count), **metrics},
        )
        self._count, self._index, self._has_episode_ended = count, update.index, False
