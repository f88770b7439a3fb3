"""Recording a PettingZoo environment in place, or in a wrapper."""

from __future__ import annotations

from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from mttp.errors import InstrumentError
from mttp.integrations.gymnasium.inplace import METHODS, EnvAttachment
from mttp.integrations.gymnasium.recorder import EnvRecorder
from mttp.integrations.options import Options
from mttp.integrations.patching import handle_in
from mttp.integrations.pettingzoo.parallel import RecordedParallelEnv
from mttp.integrations.pettingzoo.turns import RecordedTurns, TurnsRecorder
from mttp.integrations.pettingzoo.wrappers import RecordAECEpisodes, RecordParallelEpisodes

__all__ = ["attach", "wrap"]


def attach(target: Any, /, **options: Any) -> EnvAttachment:
    """
    Record a parallel or turn-based environment in place.

    An environment that is already recorded keeps its handle and gets the new options.
    Raises InstrumentError for any other target, and if a method can't be patched.
    """
    chosen = Options.of(options)
    found = handle_in(target, EnvAttachment, "step")
    if found is not None:
        if options:
            found.use(chosen)
        return found.claim()
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
