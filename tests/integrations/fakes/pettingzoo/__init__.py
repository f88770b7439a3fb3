"""A stand-in for PettingZoo: its classes of environments, with the methods that mttp patches or calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pettingzoo.utils.env import AECEnv, ParallelEnv

__all__ = ["AECEnv", "ParallelEnv", "make"]


def make(env_type: str, id: Callable[[], Any]) -> Any:
    """Return a new environment."""
    assert env_type in ("aec", "parallel")

    return id()
