"""Worker processes of an AsyncVectorEnv: where the parent records, what they hold records nothing."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import AsyncVectorEnv

__all__ = ["MUTED", "forget", "mute", "switch"]

MUTED = "_mttp_muted"
"""Attribute of a recorded environment in a child process."""


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
