"""The updates that a model makes, by what it logs of them."""

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
}
"""What an update calls what the library logs; the rest are its metrics."""
_NEGATIVE_ENTROPY = "train/entropy_loss"


class ModelUpdates:
    """
    One model's updates.

    An on-policy algorithm learns once per rollout, and each time is an update.
    Any other learns every few steps from a buffer: an update is recorded once an episode is over.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._index: int | None = None
        self._has_played = False

    def begin(self, model: Any) -> None:
        """A training begins: what the model learned before is no news."""
        if self._index is None:
            self._seen = int(model._n_updates)

    def policy(self) -> dict[str, Any]:
        """What an episode that starts says of the policy."""
        return {"policy_version": self._seen, "policy_update_index": self._index}

    def closing(self) -> dict[str, Any]:
        """What an episode that ends says of it."""
        return {"policy_version_end": str(self._seen)}

    def played(self) -> None:
        """An episode is over."""
        self._has_played = True

    def look(
        self, model: Any, episodes: Sequence[OpenEpisode], *, policy: object, is_last: bool = False
    ) -> None:
        """Record what was learned since the last look, if anything was."""
        is_on_policy = hasattr(model, "rollout_buffer")
        logged = model.logger.name_to_value
        count = int(logged.get(_COUNT, self._seen))
        if count == self._seen or not (is_on_policy or is_last or self._has_played):
            return
        numbers = {name: value for name, value in logged.items() if name.startswith(_PREFIX)}
        numbers = {name: found for name, value in numbers.items() if (found := number(value)) is not None}
        said: dict[str, Any] = {field: numbers.pop(name) for name, field in _NAMES.items() if name in numbers}
        if _NEGATIVE_ENTROPY in numbers:
            said["entropy"] = -numbers.pop(_NEGATIVE_ENTROPY)
        numbers.pop(_COUNT, None)
        metrics = {name.removeprefix(_PREFIX): value for name, value in numbers.items()}
        update = training.update(
            **said,
            policy=policy,
            policy_version_before=self._seen,
            policy_version_after=count,
            episodes=episodes if is_on_policy else (),
            metrics={"gradient_steps": float(count - self._seen), **metrics},
        )
        self._seen, self._index, self._has_played = count, update.index, False
