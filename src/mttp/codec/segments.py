"""Segments of an episode, one per process: missing spans, and totals over all segments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from mttp.codec.duplicates import CopyKey, copy_key
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
    "effective_scoring",
    "reward_sum",
    "segment",
    "states_total",
]

OWNER = ""
"""The segment of the process with the root, which has no id."""

_MAX_REWARDS = 1000
"""The number of rewards that are kept before they are summed."""

_R = TypeVar("_R", "Reward", "Scored")
Scoring: TypeAlias = "tuple[str, Reward]"
"""A segment's id and a scoring that was recorded in it."""


def identity(run_id: str, episode_id: str, segment_id: str) -> dict[str, str]:
    """Return the attributes that all spans of a segment have."""
    return {a.RUN_ID: run_id, a.EPISODE_ID: episode_id, a.SEGMENT_ID: segment_id}


def segment(record: SpanRecord) -> str:
    """Return the id of a span's segment."""
    return str(record.attributes.get(a.SEGMENT_ID, OWNER))


def _span_count(record: SpanRecord) -> int:
    """Return how many spans a record counts for: a block counts as one per step."""
    steps = record.attributes.get(a.STEPS_COUNT)
    return steps if type(steps) is int and steps > 0 else 1


class _EpisodePart:
    """The spans of one segment that were found."""

    __slots__ = ("found", "keys", "stated")

    def __init__(self) -> None:
        self.keys: set[CopyKey] | None = set()
        """The keys of the spans found; None once the segment is complete."""
        self.found = 0
        """The number of spans found."""
        self.stated: int | None = None
        """The number of recorded spans; None until the segment's end is found."""


class EpisodeParts:
    """Counts the spans of each segment, found and recorded."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, _EpisodePart] = {}

    @classmethod
    def of(cls, types: Mapping[str, Iterable[SpanRecord]]) -> EpisodeParts:
        """Count the spans of a trace, given by type."""
        parts = cls()
        for kind, records in types.items():
            for record in records:
                if a.RUN_ID in record.attributes and a.EPISODE_ID in record.attributes:
                    parts.add(kind, record)
        return parts

    def add(self, kind: str, record: SpanRecord) -> bool:
        """Count a span of a type; return whether it is new."""
        name = segment(record)
        if not self.take(name, copy_key(record), _span_count(record)):
            return False
        part = self._parts[name]
        if part.stated is None and kind == (names.SEGMENT if name else names.EPISODE):
            count = record.attributes.get(a.SEGMENT_SPAN_COUNT if name else a.EPISODE_SPAN_COUNT)
            part.stated = count if isinstance(count, int) else 0
        if part.stated is not None and part.found >= part.stated:
            part.keys = None
        return True

    def take(self, name: str, key: CopyKey, count: int = 1) -> bool:
        """Count a span as `count` spans of a segment; return whether it is new."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _EpisodePart()
        if part.keys is None or key in part.keys:
            return False
        part.keys.add(key)
        part.found += count
        return True

    def is_whole(self, name: str) -> bool:
        """Return whether all spans of a segment were found."""
        part = self._parts.get(name)
        return part is not None and part.keys is None

    @property
    def found(self) -> int:
        """The number of spans found, over all segments."""
        return sum(part.found for part in self._parts.values())

    @property
    def recorded(self) -> int:
        """The number of recorded spans, over all segments whose end was found."""
        return sum(part.stated or 0 for part in self._parts.values())

    def lacking(self) -> list[str]:
        """Describe the missing spans of each segment; empty if none is missing."""
        lacks = []
        for name, part in sorted(self._parts.items()):
            where = f" of segment {name}" if name else ""
            if part.stated is None:
                lacks.append(f"the end{where} was not found")
            elif part.keys is not None:
                lacks.append(f"{part.found} of {part.stated}{where} were found")
        return lacks


class StepFacts(NamedTuple):
    """The facts of a step or a block of steps from which totals are computed."""

    steps: int
    """The number of steps."""
    position: int
    """The index of the step, or of the last step of a block."""
    agent: str | None
    """The agent's id."""
    reward: float | None
    """The reward, or the sum of rewards; None if missing or unknown."""
    is_known: bool
    """Whether no reward is invalid."""


class Totals:
    """Totals over steps."""

    __slots__ = ("is_known", "length", "rewards", "steps")

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.steps: Counter[str | None] = Counter()
        """The number of steps by agent."""
        self.length = 0
        """The highest index plus one."""
        self.rewards: list[float] = []
        """The rewards of steps without an agent."""
        self.is_known = True
        """Whether all of these rewards are valid."""
        for step in steps:
            is_known = step.reward is not None or step.reward_status != "error"
            self.add(StepFacts(1, step.index, step.agent, step.reward, is_known))

    def add(self, facts: StepFacts) -> None:
        """Add a step or a block of steps."""
        self.steps[facts.agent] += facts.steps
        self.length = max(self.length, facts.position + 1)
        if facts.agent is None:
            self.is_known = self.is_known and facts.is_known
            if facts.reward is not None:
                self.rewards.append(facts.reward)
            if len(self.rewards) > _MAX_REWARDS:
                subtotal = total(self.rewards)
                self.is_known = self.is_known and subtotal is not None
                self.rewards = [] if subtotal is None else [subtotal]

    @property
    def longest(self) -> int:
        """The highest number of steps of one agent."""
        return max(self.steps.values(), default=0)

    @property
    def has_rewards(self) -> bool:
        """Whether any step has a reward, valid or not."""
        return bool(self.rewards) or not self.is_known


def combined(
    own: Mapping[str, Any], theirs: Totals, effective: tuple[str, Reward | Scored] | None
) -> dict[str, Any]:
    """
    Return the fields of an episode that steps and scorings of other processes change.

    `own` has the fields from the root, `effective` the scoring of the episode that counts.
    """
    more: dict[str, Any] = {}
    basis = own.get("return_basis")
    if theirs.steps:
        more["step_count"] = own.get("step_count", 0) + theirs.steps.total()
        more["length"] = max(own.get("length", 0), theirs.length)
    if theirs.has_rewards:
        more["step_reward_sum"] = total([*theirs.rewards, own.get("step_reward_sum")])
        if basis != "episode":
            before = None if basis is None else own.get("return_")
            is_known = theirs.is_known and (basis is None or before is not None)
            more |= {
                "return_basis": "steps",
                "return_": total([*theirs.rewards, before]) if is_known else None,
            }
    if basis != "episode" and effective is not None and effective[0] != OWNER and states_total(effective[1]):
        more |= {"return_basis": "episode", "return_": effective[1].value}
    return more


def states_total(reward: Reward | Scored) -> bool:
    """Return whether the scoring states a total, valid or not."""
    return reward.value is not None or reward.status == "error"


def effective_scoring(scorings: Sequence[tuple[str, _R]], *, owner: str = OWNER) -> tuple[str, _R] | None:
    """
    Return the scoring that counts: the owner's last if it states a total, else the last of others that does.

    If none states a total, the last scoring; None without scorings.
    """
    of_owner = [scoring for scoring in scorings if scoring[0] == owner]
    if of_owner and states_total(of_owner[-1][1]):
        return of_owner[-1]
    others = [scoring for scoring in scorings if scoring[0] != owner and states_total(scoring[1])]
    candidates = others or scorings
    return candidates[-1] if candidates else None


def reward_sum(steps: Iterable[Step]) -> tuple[float | None, bool]:
    """Return the sum of the valid rewards, None without any, and whether no reward is invalid."""
    steps = list(steps)
    is_known = not any(step.reward is None and step.reward_status == "error" for step in steps)
    return total(step.reward for step in steps), is_known


def total(rewards: Iterable[float | None]) -> float | None:
    """Return the sum of the numbers; None without any, and if the sum is not a number."""
    numbers = [reward for reward in rewards if reward is not None]
    try:
        return math.fsum(numbers) if numbers else None
    except (OverflowError, ValueError):  # the sum overflows, or has infinities of both signs
        return None
