"""Exponential backoff with jitter."""

from __future__ import annotations

from random import SystemRandom

__all__ = ["LONGEST", "wait"]

FIRST = 0.2
LONGEST = 5.0
"""Longest delay between two attempts, in seconds."""

_random = SystemRandom()  # the program's seeded generators stay untouched


def wait(failures: int, at_least: float | None = None) -> float:
    """Return the delay in seconds after `failures` failed attempts, at least `at_least`."""
    most = min(FIRST * 2.0 ** min(failures - 1, 30), LONGEST)
    return max(_random.uniform(most / 2, most), at_least or 0.0)
