"""The parts of an episode, one of each process that recorded it: is all there, and who says what was paid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mttp.codec import kinds
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord

if TYPE_CHECKING:
    from mttp.episodes import Reward, Step

__all__ = [
    "OWNER",
    "Parts",
    "Scoring",
    "identity",
    "lack",
    "paid",
    "paying",
    "segment",
    "span_count",
    "states_total",
]

OWNER = ""
"""Stands for the part of the process that owns the root; the others have an id."""

Scoring: TypeAlias = "tuple[str, Reward]"
"""A scoring, and in whose part it was recorded."""


def identity(run_id: str, episode_id: str, segment_id: str) -> dict[str, str]:
    """What every span of a part says."""
    return {a.RUN_ID: run_id, a.EPISODE_ID: episode_id, a.SEGMENT_ID: segment_id}


def segment(record: SpanRecord) -> str:
    """In whose part the span was recorded."""
    return str(record.attributes.get(a.SEGMENT_ID, OWNER))


def span_count(record: SpanRecord) -> int:
    """How many of a part's spans a record stands for: each step that is in columns is one."""
    steps = record.attributes.get(a.STEPS_COUNT)
    return steps if type(steps) is int and steps > 0 else 1


class Parts:
    """How many spans of each part were found, and how many there are."""

    __slots__ = ("_found", "_stated")

    def __init__(self, records: Iterable[SpanRecord] = ()) -> None:
        self._found: dict[str, int] = {}
        self._stated: dict[str, int] = {}
        for record in records:
            self.add(record)

    def add(self, record: SpanRecord) -> None:
        """Count a span of ours."""
        found = record.attributes
        if a.RUN_ID not in found:
            return
        part = segment(record)
        self._found[part] = self._found.get(part, 0) + span_count(record)
        if kinds.kind(record) == (names.SEGMENT if part else names.EPISODE):
            count = found.get(a.SEGMENT_SPAN_COUNT if part else a.EPISODE_SPAN_COUNT)
            self._stated[part] = count if isinstance(count, int) else 0

    @property
    def found(self) -> int:
        """Spans that were found, of all parts."""
        return sum(self._found.values())

    @property
    def recorded(self) -> int:
        """Spans that there are, as far as that is stated."""
        return sum(self._stated.values())

    def lacking(self) -> list[str]:
        """What is missing, a few words for each part; empty where nothing is."""
        counted = ((part, found, self._stated.get(part)) for part, found in sorted(self._found.items()))
        return [words for part, found, stated in counted if (words := lack(part, found, stated))]


def lack(part: str, found: int, stated: int | None) -> str:
    """What a part lacks of which so many spans were found and are stated, in words; empty where nothing."""
    where = f" of its part {part}" if part else ""
    if stated is None:
        return f"the end{where} was not found"
    return f"{found} of {stated}{where} were found" if found < stated else ""


def states_total(reward: Reward) -> bool:
    """Whether the scoring says what the whole was paid, if only that it can't be known."""
    return reward.value is not None or reward.status == "error"


def paying(scorings: Sequence[Scoring], *, owner: str = OWNER) -> Scoring:
    """
    The scoring of the whole that stands: the owner's last where it states a total, else another's that does.

    Where nobody states one it is the last; status missing where there is none at all.
    """
    from mttp.episodes import Reward  # which a summary does without

    own = [scoring for scoring in scorings if scoring[0] == owner]
    if own and states_total(own[-1][1]):
        return own[-1]
    others = [scoring for scoring in scorings if scoring[0] != owner and states_total(scoring[1])]
    return (others or scorings or [(owner, Reward())])[-1]


def paid(steps: Iterable[Step], *, so_far: float | None = None) -> tuple[float | None, bool]:
    """Sum of the rewards that are numbers, None where there is none, and whether there are no others."""
    steps = list(steps)
    numbers = [step.reward for step in steps if step.reward is not None]
    numbers += [] if so_far is None else [so_far]
    try:
        total = math.fsum(numbers) if numbers else None
    except OverflowError:  # finite numbers whose sum is not
        total = None
    return total, not any(step.reward is None and step.reward_status == "error" for step in steps)
