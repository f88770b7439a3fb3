"""The Stable-Baselines3 callback that passes training events to a `ModelRecorder`."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from mttp.integrations.faults import hook_failed
from mttp.integrations.stable_baselines3.recorder import LIBRARY, ModelRecorder
from mttp.model.interrupts import raise_interrupt

__all__ = ["RecordingCallback"]


class RecordingCallback(BaseCallback):  # type: ignore[misc]  # untyped where it is not installed
    """Calls a recorder's hooks; an error in a hook aborts the recorded episodes, not the training."""

    def __init__(self, recorder: ModelRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def _on_training_start(self) -> None:
        self._call("on_training_start")

    def _on_rollout_start(self) -> None:
        self._call("on_rollout_start")

    def _on_step(self) -> bool:
        self._call("on_step", self.locals)
        return True

    def _on_rollout_end(self) -> None:
        self._call("on_rollout_end")

    def _on_training_end(self) -> None:
        self._call("on_training_end")
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    def _call(self, hook: str, *arguments: Any) -> None:
        try:
            getattr(self._recorder, hook)(self.model, *arguments)
        except Exception as error:
            raise_interrupt(error)
            hook_failed(LIBRARY, hook, error)
            self._recorder.abort_after_error()
