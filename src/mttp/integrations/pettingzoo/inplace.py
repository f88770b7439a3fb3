"""Recording a PettingZoo environment in place, or in a wrapper."""

from __future__ import annotations

from typing import Any

from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper

from mttp.errors import InstrumentError
from mttp.integrations.gymnasium.inplace import METHODS, EnvAttachment
from mttp.integrations.gymnasium.recorder import CopiedRecorder, EnvRecorder
from mttp.integrations.options import Options
from mttp.integrations.patching import handle_in
from mttp.integrations.pettingzoo.environments import RecordedParallelEnv, RecordedTurns, TurnsRecorder

__all__ = ["RecordAECEpisodes", "RecordParallelEpisodes", "attach", "wrap"]


class RecordParallelEpisodes(CopiedRecorder, BaseParallelWrapper):  # type: ignore[misc]  # untyped
    """
    Records a parallel environment's episodes; the options are those of `mttp.wrap`.

    A copy records its own episodes, from its next reset on.
    """

    def __init__(self, env: Any, **options: Any) -> None:
        super().__init__(env)
        self._options = options
        self._recorder = self._new_recorder()

    def _new_recorder(self) -> EnvRecorder:
        chosen = Options.of(self._options)
        return EnvRecorder(RecordedParallelEnv(self.env, chosen), self, "pettingzoo")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment."""
        return self._recorder.reset(self.env.reset, self, (), {"seed": seed, "options": options})

    def step(self, actions: Any) -> Any:
        """Step the environment."""
        return self._recorder.step(self.env.step, self, (actions,), {})

    def close(self) -> None:
        """Close the environment; an open episode ends as aborted."""
        self._recorder.close(self.env.close, self, (), {})


class RecordAECEpisodes(CopiedRecorder, BaseWrapper):  # type: ignore[misc]  # untyped
    """
    Records a turn-based environment's episodes; the options are those of `mttp.wrap`.

    A copy records its own episodes, from its next reset on.
    """

    _recorder: TurnsRecorder

    def __init__(self, env: Any, **options: Any) -> None:
        super().__init__(env)
        self._options = options
        self._recorder = self._new_recorder()

    def _new_recorder(self) -> TurnsRecorder:
        return TurnsRecorder(RecordedTurns(self.env, Options.of(self._options)), self)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Reset the environment."""
        self._recorder.reset(self.env.reset, self, (), {"seed": seed, "options": options})

    def step(self, action: Any) -> None:
        """Step the environment."""
        self._recorder.step(self.env.step, self, (action,), {})

    def observe(self, agent: Any) -> Any:
        """Return an agent's observation."""
        return self._recorder.observe(self.env.observe, self, (agent,), {})

    def close(self) -> None:
        """Close the environment; an open episode ends as finished or aborted."""
        self._recorder.close(self.env.close, self, (), {})


def attach(target: Any, /, **options: Any) -> EnvAttachment:
    """
    Record a parallel or turn-based environment in place.

    An environment that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError for any other target, and if a method can't be patched.
    """
    chosen = Options.of(options)
    attachment = handle_in(target, EnvAttachment, "step")
    if attachment is not None:
        if options:
            attachment.use(chosen)
        return attachment.claim()
    if isinstance(target, ParallelEnv):
        recorder = EnvRecorder(RecordedParallelEnv(target, chosen), target, "pettingzoo")
        return EnvAttachment(target, recorder)
    if isinstance(target, AECEnv):
        return EnvAttachment(
            target, TurnsRecorder(RecordedTurns(target, chosen), target), (*METHODS, "observe")
        )
    raise InstrumentError(_not_an_env(target))


def wrap(target: Any, /, **options: Any) -> Any:
    """
    Return a parallel or turn-based environment in a recording wrapper.

    A target that is already such a wrapper is returned unchanged, unless options are given.
    Raises InstrumentError for any other target.
    """
    if isinstance(target, (RecordParallelEpisodes, RecordAECEpisodes)) and not options:
        return target
    if isinstance(target, ParallelEnv):
        return RecordParallelEpisodes(target, **options)
    if isinstance(target, AECEnv):
        return RecordAECEpisodes(target, **options)
    raise InstrumentError(_not_an_env(target))


def _not_an_env(target: Any) -> str:
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    return f"{kind} is neither a pettingzoo.ParallelEnv nor a pettingzoo.AECEnv"
