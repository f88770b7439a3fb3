"""An episode as far as a summary wants to know it: its figures, and what its spans and scorings count for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mttp.codec import summary_fields
from mttp.model.gradings import OTHER, Grading
from mttp.model.spans import Scope
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Counts", "EpisodeSummary", "IsOpen", "EpisodeRow", "Undecided"]

IsOpen: TypeAlias = Callable[[str], bool]
"""Whether some spans of an episode, by its trace id, were read already, and not all."""

_MAX_KINDS = 100
"""Different kinds of faults that are listed; further ones are counted as `_OTHER`."""
_CHANGED = 4
"""The first fields of `EpisodeSummary`, which are no plain data."""
_TAKES_TOKENS = frozenset({summary_fields.CALL, names.STEP, names.STEPS})
_STATES_FAULTS = frozenset(
    {names.EPISODE, names.SEGMENT, names.AGENT, names.STEP, names.STEPS, names.GROUP, names.UPDATE}
    | {names.ANNOTATE}
)
"""
Spans whose faults are counted one by one.

The faults of a scoring are also on the span of what was scored.
Those of a run are counted once, at the end.
"""


class Counts:
    """Tokens of policies and of called models, each given and sampled; faults by kind, omissions by name."""

    __slots__ = ("call_tokens", "faults", "omissions", "tokens")

    def __init__(
        self,
        tokens: Sequence[int] = (0, 0),
        call_tokens: Sequence[int] = (0, 0),
        faults: dict[str, int] | None = None,
        omissions: dict[str, int] | None = None,
    ) -> None:
        self.tokens = [*tokens]
        self.call_tokens = [*call_tokens]
        self.faults = faults or {}
        self.omissions = omissions or {}

    def add(self, kind: str, attributes: Mapping[str, Any]) -> None:
        """Count those of a span of that kind."""
        if kind in _TAKES_TOKENS:
            counts = self.call_tokens if kind == summary_fields.CALL else self.tokens
            given, sampled = summary_fields.counts(attributes)
            counts[0] += given
            counts[1] += sampled
        if (a.FAULTS in attributes or kind == names.STEPS) and kind in _STATES_FAULTS:
            for fault in summary_fields.faults(attributes):
                self.faults[fault] = self.faults.get(fault, 0) + 1
        if a.OMISSIONS in attributes or kind == names.STEPS:
            for name in summary_fields.omitted(attributes):
                self.omissions[name] = self.omissions.get(name, 0) + 1

    def merge(self, other: Counts) -> None:
        """Count what others counted."""
        for sums, (given, sampled) in ((self.tokens, other.tokens), (self.call_tokens, other.call_tokens)):
            sums[0] += given
            sums[1] += sampled
        for own, counted in ((self.faults, other.faults), (self.omissions, other.omissions)):
            for kind, count in counted.items():
                listed = kind if kind in own or len(own) < _MAX_KINDS else OTHER
                own[listed] = own.get(listed, 0) + count

    def plain(self) -> tuple[Any, ...]:
        """As plain data, which a new one takes."""
        return self.tokens, self.call_tokens, self.faults, self.omissions


class EpisodeRow(NamedTuple):
    """One episode's figures."""

    run: str
    trace_id: str
    start_time: int
    duration: float
    return_: float
    length: int
    status: str
    outcome: str
    env: str
    spec: str
    task: str


class Undecided(NamedTuple):
    """A scoring of the whole that states no total: one of another process stands instead if it does."""

    when: tuple[int, int]
    """When it began and ended."""
    gradings: tuple[Grading, ...]


class EpisodeSummary(NamedTuple):
    """An episode: it stands for all its spans, at the place of the last."""

    row: EpisodeRow
    counts: Counts
    gradings: tuple[Grading, ...]
    """Those of the last scoring of each step and agent, and of the whole if that states a total."""
    undecided: Undecided | None
    """The scoring of the whole if it states none."""
    cost_usd: float | None
    is_scored: bool = False
    """Whether the scoring of the whole states a total."""
    basis: str | None = None
    """What the return is the sum of; None where nothing was paid."""
    root: str = ""
    """The id of the root's span."""
    spans: int = 0
    """How many different spans it has."""
    duplicates: int = 0
    """How many came again until its end."""
    invalid_step_rewards: int = 0
    """How many steps have a reward that is not a finite number, and no scoring."""
    scope: Scope = Scope()
    name: str = ""
    """Empty, so that it is not taken for a span of any kind."""

    @property
    def trace_id(self) -> str:
        """The id of its trace."""
        return self.row.trace_id

    def plain(self) -> tuple[Any, ...]:
        """Without its scope, as plain data."""
        undecided = self.undecided and (self.undecided.when, _plain(self.undecided.gradings))
        changed = tuple(self.row), self.counts.plain(), _plain(self.gradings), undecided
        return (*changed, *self[_CHANGED:-2])

    @classmethod
    def of_plain(cls, values: tuple[Any, ...], scope: Scope) -> EpisodeSummary:
        """What `plain` was made of."""
        row, counts, gradings, undecided = values[:_CHANGED]
        if undecided is not None:
            undecided = Undecided(undecided[0], _gradings(undecided[1]))
        made = EpisodeRow(*row), Counts(*counts), _gradings(gradings), undecided
        return cls._make((*made, *values[_CHANGED:], scope, ""))


def _plain(gradings: tuple[Grading, ...]) -> Any:
    return tuple(map(tuple, gradings))


def _gradings(plain: Any) -> tuple[Grading, ...]:
    return tuple(map(Grading._make, plain))
