"""The parts of an episode, one of each process that recorded it: what they lack, and what they come to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.model.episodes import Reward, Step
    from mttp.model.gradings import Scored

__all__ = [
    "OWNER",
    "EpisodeParts",
    "StepFacts",
    "Scoring",
    "Totals",
    "combined",
    "identity",
    "paid",
    "paying",
    "segment",
    "states_total",
]

OWNER = ""
"""Stands for the part of the process that owns the root; the others have an id."""

_MOST_REWARDS = 1000
"""Rewards that are kept one by one before they are added up."""

_R = TypeVar("_R", "Reward", "Scored")
Scoring: TypeAlias = "tuple[str, Reward]"
"""A scoring, and in whose part it was recorded."""


def identity(run_id: str, episode_id: str, segment_id: str) -> dict[str, str]:
    """What every span of a part says."""
    return {a.RUN_ID: run_id, a.EPISODE_ID: episode_id, a.SEGMENT_ID: segment_id}


def segment(record: SpanRecord) -> str:
    """In whose part the span was recorded."""
    return str(record.attributes.get(a.SEGMENT_ID, OWNER))


def _span_count(record: SpanRecord) -> int:
    """How many of a part's spans a record stands for: each step that is in columns is one."""
    steps = record.attributes.get(a.STEPS_COUNT)
    return steps if type(steps) is int and steps > 0 else 1


class _EpisodePart:
    """The spans of one part that were found."""

    __slots__ = ("found", "ids", "stated")

    def __init__(self) -> None:
        self.ids: set[str] | None = set()
        """Their ids; None once they are all there."""
        self.found = 0
        """How many they are."""
        self.stated: int | None = None
        """How many there are; None while that was not said."""


class EpisodeParts:
    """The spans of each part that were found, and how many there are."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, _EpisodePart] = {}

    @classmethod
    def of(cls, types: Mapping[str, Iterable[SpanRecord]]) -> EpisodeParts:
        """Those of the spans of a trace, by type."""
        parts = cls()
        for kind, records in types.items():
            for record in records:
                if a.RUN_ID in record.attributes and a.EPISODE_ID in record.attributes:
                    parts.add(kind, record)
        return parts

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Take note of a span of that kind; whether it is new."""
        name = segment(record)
        if not self.take(name, record.span_id, _span_count(record)):
            return False
        part = self._parts[name]
        if part.stated is None and kind == (names.SEGMENT if name else names.EPISODE):
            count = record.attributes.get(a.SEGMENT_SPAN_COUNT if name else a.EPISODE_SPAN_COUNT)
            part.stated = count if isinstance(count, int) else 0
        if part.stated is not None and part.found >= part.stated:
            part.ids = None
        return True

    def take(self, name: str, span_id: str, count: int = 1) -> bool:
        """Take note of a span that does not end its part, and stands for so many; whether it is new."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _EpisodePart()
        if part.ids is None or span_id in part.ids:
            return False
        part.ids.add(span_id)
        part.found += count
        return True

    def is_whole(self, name: str) -> bool:
        """Whether all spans of a part were found."""
        part = self._parts.get(name)
        return part is not None and part.ids is None

    @property
    def found(self) -> int:
        """Spans that were found, of all parts."""
        return sum(part.found for part in self._parts.values())

    @property
    def recorded(self) -> int:
        """Spans that there are, as far as that is stated."""
        return sum(part.stated or 0 for part in self._parts.values())

    def lacking(self) -> list[str]:
        """What is missing, a few words for each part; empty where nothing is."""
        lacks = []
        for name, part in sorted(self._parts.items()):
            where = f" of its part {name}" if name else ""
            if part.stated is None:
                lacks.append(f"the end{where} was not found")
            elif part.ids is not None:
                lacks.append(f"{part.found} of {part.stated}{where} were found")
        return lacks


class StepFacts(NamedTuple):
    """What one step, or a block of steps, says of what was played and paid."""

    steps: int
    """How many steps it is."""
    position: int
    """The step's index, of several the last one's."""
    agent: str | None
    """The agent that played."""
    reward: float | None
    """What was paid; None where nothing was, or that can't be known."""
    is_known: bool
    """Whether that can be known."""


class Totals:
    """What steps come to."""

    __slots__ = ("is_known", "length", "rewards", "steps")

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.steps: Counter[str | None] = Counter()
        """How many, by agent."""
        self.length = 0
        """One more than the highest index."""
        self.rewards: list[float] = []
        """What was paid for steps of no agent."""
        self.is_known = True
        """Whether all that was paid for them is a number."""
        for step in steps:
            is_known = step.reward is not None or step.reward_status != "error"
            self.add(StepFacts(1, step.index, step.agent, step.reward, is_known))

    def add(self, played: StepFacts) -> None:
        """Add a step or a block of steps."""
        self.steps[played.agent] += played.steps
        self.length = max(self.length, played.position + 1)
        if played.agent is None:
            self.is_known = self.is_known and played.is_known
            if played.reward is not None:
                self.rewards.append(played.reward)
            if len(self.rewards) > _MOST_REWARDS:
                paid = total(self.rewards)
                self.is_known = self.is_known and paid is not None
                self.rewards = [] if paid is None else [paid]

    @property
    def longest(self) -> int:
        """How many steps the agent took that took most of them."""
        return max(self.steps.values(), default=0)

    @property
    def is_paid(self) -> bool:
        """Whether anything was paid, if only what can't be known."""
        return bool(self.rewards) or not self.is_known


def combined(
    own: Mapping[str, Any], theirs: Totals, paying: tuple[str, Reward | Scored] | None
) -> dict[str, Any]:
    """
    What an episode's root could not know: what other processes did and paid.

    `own` is what the root says by field, `paying` the scoring of the whole that stands.
    """
    more: dict[str, Any] = {}
    basis = own.get("return_basis")
    if theirs.steps:
        more["step_count"] = own.get("step_count", 0) + theirs.steps.total()
        more["length"] = max(own.get("length", 0), theirs.length)
    if theirs.is_paid:
        more["step_reward_sum"] = total([*theirs.rewards, own.get("step_reward_sum")])
        if basis != "episode":
            before = None if basis is None else own.get("return_")
            is_known = theirs.is_known and (basis is None or before is not None)
            more |= {
                "return_basis": "steps",
                "return_": total([*theirs.rewards, before]) if is_known else None,
            }
    if basis != "episode" and paying is not None and paying[0] != OWNER and states_total(paying[1]):
        more |= {"return_basis": "episode", "return_": paying[1].value}
    return more


def states_total(reward: Reward | Scored) -> bool:
    """Whether the scoring says what the whole was paid, if only that it can't be known."""
    return reward.value is not None or reward.status == "error"


def paying(scorings: Sequence[tuple[str, _R]], *, owner: str = OWNER) -> tuple[str, _R] | None:
    """
    The scoring of the whole that stands: the owner's last where it states a total, else another's that does.

    Where none states a total it is the last; None where there is no scoring.
    """
    own = [scoring for scoring in scorings if scoring[0] == owner]
    if own and states_total(own[-1][1]):
        return own[-1]
    others = [scoring for scoring in scorings if scoring[0] != owner and states_total(scoring[1])]
    found = others or scorings
    return found[-1] if found else None


def paid(steps: Iterable[Step]) -> tuple[float | None, bool]:
    """Sum of the rewards that are numbers, None where there is none, and whether there are no others."""
    steps = list(steps)
    is_known = not any(step.reward is None and step.reward_status == "error" for step in steps)
    return total(step.reward for step in steps), is_known


def total(rewards: Iterable[float | None]) -> float | None:
    """Sum of the numbers; None where there are none, or their sum is no number."""
    numbers = [reward for reward in rewards if reward is not None]
    try:
        return math.fsum(numbers) if numbers else None
    except (OverflowError, ValueError):  # finite numbers whose sum is not, or both infinities
        return None
