"""How long to wait before the next attempt: exponentially longer, and not all at the same time."""

from __future__ import annotations

from random import SystemRandom

__all__ = ["LONGEST", "wait"]

FIRST = 0.2
LONGEST = 5.0
"""Seconds between two attempts, at most."""

_random = SystemRandom()  # the program's seeded generators stay untouched


def wait(failures: int, at_least: float | None = None) -> float:
    """Seconds to wait after so many attempts that failed; at least what the other side asked for."""
    most = min(FIRST * 2.0 ** min(failures - 1, 30), LONGEST)
    return max(_random.uniform(most / 2, most), at_least or 0.0)
