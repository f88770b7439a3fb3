"""Seeds of a vector environment's environments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mttp.integrations.gymnasium import facts
from mttp.integrations.gymnasium.randomness import GeneratorSource

__all__ = ["Seeding"]


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
        found = self._sources[0].after()
        seed = found.pop("seed")
        return found if seed is None else {**found, "metadata": {"vector_seed": _recordable(seed)}}


def _recordable(seed: int) -> int | str:
    """Return a seed that fits into metadata: as text beyond 63 bits, as seeds from the system have."""
    return seed if seed < 2**63 else str(seed)
