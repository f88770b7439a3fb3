"""An environment's seed, or a digest of its random generator where the seed is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from mttp.codec.generators import GeneratorState, sha256

__all__ = ["GeneratorSource", "digest"]

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
        found = int(value)
    except (TypeError, ValueError):
        return None
    return found if found >= 0 else None


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
