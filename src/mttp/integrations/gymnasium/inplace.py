"""Recording an environment in place by patching its methods, and silencing the recorders that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from mttp.errors import InstrumentError
from mttp.integrations.gymnasium import facts, workers
from mttp.integrations.gymnasium.env import SingleEnv
from mttp.integrations.gymnasium.recorder import EnvRecorder
from mttp.integrations.gymnasium.vector_env import RecordedVectorEnv
from mttp.integrations.gymnasium.wrappers import RecordEpisodes, RecordVectorEpisodes
from mttp.integrations.options import Options
from mttp.integrations.patching import Patches, handle_in
from mttp.model.interrupts import suppress_errors

__all__ = ["EnvAttachment", "METHODS", "attach", "silence", "wrap"]

METHODS = ("reset", "step", "close")
"""The methods of every environment that are patched."""
_ASYNC_METHODS = ("reset_async", "reset_wait", "step_async", "step_wait")
"""The methods that an AsyncVectorEnv's `reset` and `step` consist of."""


class EnvAttachment(Patches):
    """The handle of an environment that is recorded in place."""

    def __init__(self, env: Any, recorder: EnvRecorder, names: tuple[str, ...] = METHODS) -> None:
        super().__init__(self._stop)
        self._env = env
        self._recorder = recorder
        workers.mute(env, muted=True)
        self.install(env, [(name, name, getattr(recorder, name)) for name in names])

    @property
    def recorder(self) -> EnvRecorder:
        """The recorder whose methods wrap the environment's."""
        return self._recorder

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._recorder.use(options)

    def _stop(self) -> None:
        self._recorder.stop()
        workers.forget(self._env)
        with suppress_errors():  # workers that do not respond stay muted
            workers.mute(self._env, muted=False)


def attach(target: Any, /, **options: Any) -> EnvAttachment:
    """
    Record an environment or a vector environment in place.

    An environment that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError for any other target, and if a method can't be patched.
    """
    chosen = Options.of(options)
    attachment = handle_in(target, EnvAttachment, "step")
    if attachment is not None:
        if options:
            attachment.use(chosen)
        return attachment.claim()
    if isinstance(target, gymnasium.Env):
        return EnvAttachment(target, EnvRecorder(SingleEnv(target, chosen), target))
    if isinstance(target, VectorEnv):
        names = METHODS + _ASYNC_METHODS if isinstance(target, AsyncVectorEnv) else METHODS
        return EnvAttachment(target, EnvRecorder(RecordedVectorEnv(target, chosen), target), names)
    raise InstrumentError(_not_an_env(target))


def wrap(target: Any, /, **options: Any) -> Any:
    """
    Return an environment or a vector environment in a recording wrapper.

    A target that is already such a wrapper is returned unchanged, unless options are given.
    Raises InstrumentError for any other target.
    """
    if isinstance(target, (RecordEpisodes, RecordVectorEpisodes)) and not options:
        return target
    if isinstance(target, gymnasium.Env):
        return RecordEpisodes(target, **options)
    if isinstance(target, VectorEnv):
        return RecordVectorEpisodes(target, **options)
    raise InstrumentError(_not_an_env(target))


def _not_an_env(target: Any) -> str:
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    return f"{kind} is neither a gymnasium.Env nor a gymnasium.vector.VectorEnv"


def silence(env: Any, *, silent: bool) -> None:
    """Stop every recorder in an environment's stack, or let it record again from the next reset on."""
    for recorder in _recorders(env):
        recorder.silence(silent=silent)


def _recorders(env: Any) -> Iterator[EnvRecorder]:
    for layer in facts.layers(env):
        attachment = handle_in(layer, EnvAttachment, "step")
        if attachment is not None:
            yield attachment.recorder
        if isinstance(layer, RecordEpisodes):
            yield layer.recorder
