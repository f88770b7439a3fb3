"""Muting the recorders in worker processes, the facts of environments there, and which episodes evaluate."""

from __future__ import annotations

import multiprocessing
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any
from weakref import WeakSet

from gymnasium.vector import AsyncVectorEnv

from mttp.codec.plain import plain
from mttp.integrations.gymnasium import facts
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.recording.session import Session

__all__ = [
    "CollectFacts",
    "FACTS",
    "MUTED",
    "SetMuted",
    "SetSplit",
    "forget",
    "mute",
    "mute_check",
    "split_of",
]

MUTED = "_mttp_muted"
"""The attribute of a recorded environment in a child process: whether the parent has muted it."""
FACTS = "_mttp_facts"
"""The attribute in which `CollectFacts` stores an environment's facts."""


def mute_check(env: Any) -> Callable[[], bool]:
    """Return a function that tells whether an environment is muted; only child processes mute."""
    if multiprocessing.parent_process() is None:
        return bool
    vars(env).setdefault(MUTED, False)
    return partial(_is_muted, weakref.ref(env))


def _is_muted(reference: Callable[[], Any]) -> bool:
    env = reference()
    return env is not None and bool(vars(env).get(MUTED))


def forget(env: Any) -> None:
    """Remove the attribute `MUTED`."""
    vars(env).pop(MUTED, None)


def mute(vector: Any, *, muted: bool) -> None:
    """Mute or unmute the environments in an AsyncVectorEnv's workers."""
    base = vector.unwrapped
    if not isinstance(base, AsyncVectorEnv) or base.worker is not None or base.closed:
        return
    if any(base.call("has_wrapper_attr", MUTED)):
        base.set_attr(MUTED, muted)


# Stable-Baselines3's workers exit when a call raises, or when its result, such as an environment's arguments,
# cannot be pickled. The safe call is `env_is_wrapped`, which runs `isinstance(layer, kind)` in the worker for
# each layer, outermost first, until one returns True. These kinds do their work in `__instancecheck__`.


@dataclass(frozen=True, slots=True)
class SetMuted:
    """Mutes or unmutes every recorder in a worker; `isinstance` is always False."""

    muted: bool
    """The new value."""

    def __instancecheck__(self, layer: Any) -> bool:
        with suppress_errors():
            for each in (layer, layer.unwrapped):
                if MUTED in vars(each):
                    vars(each)[MUTED] = self.muted
        return False


@dataclass(frozen=True, slots=True)
class SetSplit:
    """Sets the split of the episodes that begin in a worker; `isinstance` is True, which ends the search."""

    split: str | None
    """The new value."""

    def __instancecheck__(self, layer: Any) -> bool:
        mark(self.split)
        return True


class CollectFacts:
    """Stores an environment's `spec` and `seed` as plain data in `FACTS`; `isinstance` is True on success."""

    def __instancecheck__(self, layer: Any) -> bool:
        try:
            identity = {"spec": facts.of_spec(layer.spec), "seed": layer.unwrapped.np_random_seed}
            vars(layer)[FACTS] = plain(identity, [])
        except Exception as error:  # any error of a custom environment
            raise_interrupt(error)
            return False
        return True


_EVALUATE = "evaluate_policy"
"""
The function of Stable-Baselines3, of its contributions and of other libraries that runs evaluations.

It is looked for among the callers: programs import it by name, before anything can be patched.
"""
_trained: WeakSet[Session] = WeakSet()
"""Sessions with episodes that no evaluation began."""
_marked: str | None = None
"""In a worker process of a vector: the split of the episodes that the parent begins there."""


def split_of(session: Session) -> str | None:
    """Return eval for an episode that is begun by an evaluation, after other episodes; else None."""
    if _marked is not None:
        return _marked
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _EVALUATE:
            return "eval" if session in _trained else None
        frame = frame.f_back
    _trained.add(session)
    return None


def mark(split: str | None) -> None:
    """Set the split of this process's episodes, in which no caller shows an evaluation; None for unknown."""
    global _marked
    _marked = split
