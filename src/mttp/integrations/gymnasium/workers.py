"""Worker processes of a vector: where the parent records, what they hold records nothing."""

from __future__ import annotations

import contextlib
import multiprocessing
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from mttp.codec.plain import plain
from mttp.integrations.gymnasium import facts

__all__ = ["FACTS", "MUTED", "Introduction", "Switch", "forget", "mute", "switch"]

MUTED = "_mttp_muted"
"""Attribute of a recorded environment in a child process."""
FACTS = "_mttp_facts"
"""Attribute of an environment in a child process that was introduced."""


def switch(env: Any) -> Callable[[], bool]:
    """Tells whether an environment was muted, as it can be in a child process; it is marked for that."""
    if multiprocessing.parent_process() is None:
        return bool
    vars(env).setdefault(MUTED, False)
    return partial(_is_muted, weakref.ref(env))


def _is_muted(reference: Callable[[], Any]) -> bool:
    env = reference()
    return env is not None and bool(vars(env).get(MUTED))


def forget(env: Any) -> None:
    """Take the mark off."""
    vars(env).pop(MUTED, None)


def mute(vector: Any, *, muted: bool) -> None:
    """Have the environments in an AsyncVectorEnv's workers record nothing, or record again."""
    base = vector.unwrapped
    if not isinstance(base, AsyncVectorEnv) or base.worker is not None or base.closed:
        return
    if any(base.call("has_wrapper_attr", MUTED)):
        base.set_attr(MUTED, muted)


# What a worker of Stable-Baselines3's is asked. It ends when anything raises in it or can't be sent, as the
# arguments of an environment may not be; the one question that is always answered is what an environment is
# wrapped in. That is asked of each wrapper, outermost first, until one says yes.


@dataclass(frozen=True, slots=True)
class Switch:
    """Mutes whatever records in a worker, or lets it record again; no environment is wrapped in it."""

    muted: bool
    """Whether it is to record nothing."""

    def __instancecheck__(self, layer: Any) -> bool:
        with contextlib.suppress(Exception):
            for each in (layer, layer.unwrapped):
                if MUTED in vars(each):
                    vars(each)[MUTED] = self.muted
        return False


class Introduction:
    """
    Has an environment say what it is, `spec` and `seed`, in plain data under `FACTS`.

    One that did is wrapped in it.
    """

    def __instancecheck__(self, layer: Any) -> bool:
        try:
            told = {"spec": facts.of_spec(layer.spec), "seed": layer.unwrapped.np_random_seed}
            vars(layer)[FACTS] = plain(told, [])
        except Exception:  # whatever an environment is like
            return False
        return True
