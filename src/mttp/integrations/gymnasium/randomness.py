"""Seeds of environments, and digests of their random generators where a seed is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mttp.codec.generators import GeneratorState, sha256
from mttp.integrations.gymnasium import facts

__all__ = ["GeneratorSource", "Seeding", "digest"]

_COPIED_STATE = (np.random.PCG64, np.random.PCG64DXSM)
"""Bit generators, Gymnasium's among them, whose state is a new dict of integers and text at each access."""


class GeneratorSource:
    """
    Reads the random generator of one base environment before and after a reset, without creating one.

    `base` is None for an environment in another process.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._seed: int | None = None
        self._digest: GeneratorState | str | None = None
        self._had_none = False

    def before(self, seed: Any = None) -> None:
        """Note the seed of a reset, or the generator's state before it."""
        self._seed = _as_seed(seed)
        self._had_none = self._seed is None and self._has_none()
        self._digest = None if self._base is None or self._seed is not None else digest(self._base)

    def after(self) -> dict[str, Any]:
        """Return the seed of the reset, or the digest of the generator's state before it."""
        if self._had_none and not self._has_none():  # the reset created the generator and stored its seed
            self._seed = _as_seed(getattr(self._base, "_np_random_seed", None))
        return {"seed": self._seed, "env_rng_sha256": self._digest}

    def _has_none(self) -> bool:
        return self._base is not None and getattr(self._base, "_np_random", None) is None


def _as_seed(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        seed = int(value)
    except (TypeError, ValueError):
        return None
    return seed if seed >= 0 else None


def digest(base: Any) -> GeneratorState | str | None:
    """
    Return the SHA-256 digest of the state of a base environment's generator; None if it has no generator.

    A `GeneratorState` is digested later, when it is encoded.
    Two episodes with the same digest began from the same generator state.
    """
    bits = getattr(getattr(base, "_np_random", None), "bit_generator", None)
    state = getattr(bits, "state", None)
    if state is None:
        return None
    return GeneratorState(state) if type(bits) in _COPIED_STATE else sha256(state)


class Seeding:
    """
    Determines the seeds of a vector environment's resets.

    SyncVectorEnv and AsyncVectorEnv seed the environment `index` with `seed + index`.
    Any other vector environment is assumed to have one generator, with one seed, for all its environments.
    """

    def __init__(self, vector: Any) -> None:
        base = vector.unwrapped
        self._count = int(vector.num_envs)
        self._is_shared = not isinstance(base, (SyncVectorEnv, AsyncVectorEnv))
        inner = [member.unwrapped for member in facts.members(vector)] or [None] * self._count
        self._sources = (
            [GeneratorSource(base)] if self._is_shared else [GeneratorSource(each) for each in inner]
        )
        self._own: list[Any] = [None] * self._count

    def before(self, chosen: Iterable[int], seed: Any) -> None:
        """Note the seeds of a reset of these environments."""
        seeds = list(seed) if isinstance(seed, (list, tuple)) else None
        if self._is_shared:
            self._own = seeds or [None] * self._count
            self._sources[0].before(None if seeds else seed)
            return
        for index in chosen:
            self._sources[index].before(seeds[index] if seeds else seed if seed is None else seed + index)

    def after(self, index: int) -> dict[str, Any]:
        """Return the seed of one environment's reset, or other facts about its randomness."""
        if not self._is_shared:
            return self._sources[index].after()
        if self._own[index] is not None:
            return {"seed": self._own[index]}
        randomness = self._sources[0].after()
        seed = randomness.pop("seed")
        return randomness if seed is None else {**randomness, "metadata": {"vector_seed": _recordable(seed)}}


def _recordable(seed: int) -> int | str:
    """Return a seed that fits into metadata: as text beyond 63 bits, as seeds from the system have."""
    return seed if seed < 2**63 else str(seed)
