"""Callbacks of trainers that diagnose the run while it goes on, and stop it where `mttp.diagnose` says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.recording.configuration import current_session
from mttp.study import Diagnosis, diagnose

__all__ = ["sb3_callback", "trl_callback"]

_EVERY = 50


class _PeriodicDiagnosis:
    """Diagnoses the current session at each `every`-th call; a failure is logged once and stops nothing."""

    def __init__(
        self, every: int, quality: str | None, on_diagnosis: Callable[[Diagnosis], object] | None
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every}: give a number of updates from 1 on")
        self._every = every
        self._quality = quality
        self._on_diagnosis = on_diagnosis
        self._calls = 0
        self._has_failed = False

    def should_stop(self) -> bool:
        """Count an update; whether the run should stop now."""
        self._calls += 1
        if self._calls % self._every:
            return False
        try:
            return self._diagnosed()
        except Exception as error:
            raise_interrupt(error)
            if not self._has_failed:
                log.warning("the run could not be diagnosed, and goes on: %s", error)
            self._has_failed = True
            return False

    def _diagnosed(self) -> bool:
        session = current_session()
        if session is None:
            return False
        session.flush()
        diagnosis = diagnose(session, quality=self._quality, run=session.run_id)
        if self._on_diagnosis is not None:
            self._on_diagnosis(diagnosis)
        if diagnosis.should_stop:
            log.warning("training stops after %d updates: %s", self._calls, diagnosis.advice)
        return diagnosis.should_stop


def sb3_callback(
    *,
    every: int = _EVERY,
    quality: str | None = None,
    on_diagnosis: Callable[[Diagnosis], object] | None = None,
) -> Any:
    """
    A callback of Stable-Baselines3 that ends `model.learn` where the diagnosis says stop.

    The recording of the current session, which must be readable (a file or memory), is diagnosed after each
    `every` rollouts; each time it is read anew. `quality` is that of `mttp.diagnose`, and `on_diagnosis` is
    called with each result.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    periodic = _PeriodicDiagnosis(every, quality, on_diagnosis)

    class StoppingCallback(BaseCallback):  # type: ignore[misc]  # a foreign class without types
        def __init__(self) -> None:
            super().__init__()
            self._goes_on = True

        def _on_rollout_end(self) -> None:
            self._goes_on = not periodic.should_stop()

        def _on_step(self) -> bool:
            return self._goes_on

    return StoppingCallback()


def trl_callback(
    *,
    every: int = _EVERY,
    quality: str | None = None,
    on_diagnosis: Callable[[Diagnosis], object] | None = None,
) -> Any:
    """
    A callback of transformers' trainers, TRL's included, that ends training where the diagnosis says stop.

    It counts optimizer steps; the arguments are those of `sb3_callback`.
    """
    from transformers import TrainerCallback

    periodic = _PeriodicDiagnosis(every, quality, on_diagnosis)

    class StoppingTrainerCallback(TrainerCallback):  # type: ignore[misc]  # a foreign class without types
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
            if periodic.should_stop():
                control.should_training_stop = True
            return control

    return StoppingTrainerCallback()
