"""Numbers that are given out without a lock."""

from __future__ import annotations

import threading

from hypothesis import given as examples
from hypothesis import strategies as st

from mttp.model.counters import given, numbers, take


@examples(st.integers(0, 1 << 62), st.integers(0, 50))
def test_looking_takes_none(first: int, count: int) -> None:
    """
    However often it is read, and wherever the numbers begin.
    """
    supply = numbers(first)
    taken = [(next(supply), given(supply), given(supply))[0] for _ in range(count)]

    assert ([first + place for place in range(count)], count) == (taken, given(supply))


def test_threads_get_different_numbers() -> None:
    """
    Each number is one thread's.
    """
    supply = numbers()
    found: list[list[int]] = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=lambda kept=kept: kept.extend(next(supply) for _ in range(2000)))
        for kept in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(16_000)) == sorted(number for kept in found for number in kept)


@examples(st.integers(0, 50), st.integers(0, 50))
def test_many_are_taken_at_once(first: int, count: int) -> None:
    """
    The next one follows them.
    """
    supply = numbers(first)
    take(count, supply)

    assert (count, first + count) == (given(supply), next(supply))


def test_threads_may_take_many_at_once() -> None:
    """
    As many are given out as were taken.
    """
    supply = numbers()
    threads = [threading.Thread(target=lambda: [take(3, supply) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 12_000 == given(supply)
