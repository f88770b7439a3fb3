"""Whole numbers that are given out one after the other, each once, with no lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint

__all__ = ["MOST", "given", "numbers", "take"]

MOST = 1 << 62
"""How many there are, which is more than anybody takes."""
_FROM_ZERO = range(MOST)


def numbers(first: int = 0) -> Iterator[int]:
    """The numbers from `first` on: taking the next is one step of the interpreter."""
    return iter(range(first, first + MOST) if first else _FROM_ZERO)


def take(count: int, numbers: Iterator[int]) -> None:
    """Take so many at once: no Python code runs meanwhile, of this thread or another."""
    deque(islice(numbers, count), 0)


def given(taken_from: Iterator[int]) -> int:
    """How many were taken; looking takes none."""
    return MOST - length_hint(taken_from)
