"""The callback: what the library tells of its training."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from mttp.integrations.faults import failed
from mttp.integrations.stable_baselines3.player import LIBRARY, ModelRecorder

__all__ = ["RecordingCallback"]


class RecordingCallback(BaseCallback):  # type: ignore[misc]  # untyped where it is not installed
    """Tells a player what a model does; what goes wrong there costs the recording, and not the training."""

    def __init__(self, player: ModelRecorder) -> None:
        super().__init__()
        self._player = player

    def _on_training_start(self) -> None:
        self._tell("begins")

    def _on_rollout_start(self) -> None:
        self._tell("collects")

    def _on_step(self) -> bool:
        self._tell("steps", self.locals)
        return True

    def _on_rollout_end(self) -> None:
        self._tell("collected")

    def _on_training_end(self) -> None:
        self._tell("ends")
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    def _tell(self, what: str, *more: Any) -> None:
        try:
            getattr(self._player, what)(self.model, *more)
        except Exception as error:
            failed(LIBRARY, what, error)
            self._player.give_up()
