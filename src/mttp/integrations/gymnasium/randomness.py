"""Where an environment's randomness comes from: seeds, and digests of generators whose seed is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from mttp.codec.generators import GeneratorState, sha256

__all__ = ["GeneratorSource", "digest"]

_OF_INTEGERS = (np.random.PCG64, np.random.PCG64DXSM)
"""Generators, Gymnasium's among them, that tell their state anew each time, and in integers and text."""


class GeneratorSource:
    """
    The random generator of one base environment, looked at around a reset.

    `base` is None where the environment is out of reach, as in another process.
    No generator is made by looking.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._seed: int | None = None
        self._digest: GeneratorState | str | None = None
        self._was_bare = False

    def before(self, seed: Any = None) -> None:
        """A reset is about to be made, with this seed."""
        self._seed = _as_seed(seed)
        self._was_bare = self._seed is None and self._is_bare()
        self._digest = None if self._base is None or self._seed is not None else digest(self._base)

    def after(self) -> dict[str, Any]:
        """The reset was made: the seed, or else the digest of what the generator was before."""
        if self._was_bare and not self._is_bare():  # the reset made the generator, and knows its seed
            self._seed = _as_seed(getattr(self._base, "_np_random_seed", None))
        return {"seed": self._seed, "env_rng_sha256": self._digest}

    def _is_bare(self) -> bool:
        return self._base is not None and getattr(self._base, "_np_random", None) is None


def _as_seed(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        found = int(value)
    except (TypeError, ValueError):
        return None
    return found if found >= 0 else None


def digest(base: Any) -> GeneratorState | str | None:
    """
    What SHA-256 makes of the state of a base environment's generator, as text; None where there is none yet.

    Two episodes with the same digest began from the same state.
    """
    bits = getattr(getattr(base, "_np_random", None), "bit_generator", None)
    state = getattr(bits, "state", None)
    if state is None:
        return None
    return GeneratorState(state) if type(bits) in _OF_INTEGERS else sha256(state)
