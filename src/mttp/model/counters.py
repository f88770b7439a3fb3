"""Thread-safe counters without a lock: iterators over ranges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint

__all__ = ["MOST", "given", "numbers", "take"]

MOST = 1 << 62
"""The length of a counter, which no process exhausts."""
_FROM_ZERO = range(MOST)


def numbers(first: int = 0) -> Iterator[int]:
    """Return an iterator over the integers from `first`; `next` on it is atomic."""
    return iter(range(first, first + MOST) if first else _FROM_ZERO)


def take(count: int, numbers: Iterator[int]) -> None:
    """Take `count` numbers at once; no Python code of any thread runs in between."""
    deque(islice(numbers, count), 0)


def given(taken_from: Iterator[int]) -> int:
    """Return how many numbers were taken so far."""
    return MOST - length_hint(taken_from)
