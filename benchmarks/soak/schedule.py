"""The faults of a soak, in an order that follows from its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["FAULTS", "Fault", "schedule"]

RECEIVER = ("slow", "unavailable", "bad_request", "partial", "garbage", "page", "hang", "reset", "down")
"""What the receiver does for a while."""
ONCE = ("stop_worker", "kill_worker", "rename_file", "delete_file", "fork", "clock_back", "clock_forward")
"""What happens once."""
FAULTS = (*RECEIVER, *ONCE)
_FIRST, _LAST = 15.0, 45.0
"""Seconds without faults: at the beginning, and at the end."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and when it begins and ends, in seconds since the start."""

    kind: str
    start: float
    end: float


def schedule(seed: int, seconds: float, kinds: Sequence[str] = FAULTS) -> Iterator[Fault]:
    """Each fault once per round, in a new order each round, with quiet between."""
    rng = random.Random(seed)
    at = _FIRST
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            lasts = rng.uniform(4, 12) if kind in RECEIVER else 4.0
            if at + lasts > seconds - _LAST:
                return
            yield Fault(kind, at, at + lasts)
            at += lasts + rng.uniform(6, 12)
