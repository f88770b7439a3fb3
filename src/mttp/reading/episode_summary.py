"""The figures of one episode that a summary needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mttp.codec import summary_fields
from mttp.model.gradings import OTHER, Grading
from mttp.model.spans import Scope
from mttp.reading.episode_figures import SummaryFigures
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Counts", "EpisodeSummary", "EpisodeRow", "UndecidedScoring"]

_MAX_KINDS = 100
"""Number of fault kinds that are listed; further ones are counted as `_OTHER`."""
_TAKES_TOKENS = frozenset({summary_fields.CALL, names.STEP, names.STEPS})
_FAULT_SPANS = frozenset(
    {names.EPISODE, names.SEGMENT, names.AGENT, names.STEP, names.STEPS, names.GROUP, names.UPDATE}
    | {names.ANNOTATE}
)
"""
Spans whose faults are counted.

Faults of a scoring are also on the span of its target; faults of a run are counted once, at the end.
"""


class Counts:
    """Input and output tokens of policies and of called models, faults by kind, omissions by attribute."""

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
        """Count tokens, faults and omissions of a span of that kind."""
        if kind in _TAKES_TOKENS:
            counts = self.call_tokens if kind == summary_fields.CALL else self.tokens
            given, sampled = summary_fields.counts(attributes)
            counts[0] += given
            counts[1] += sampled
        if (a.FAULTS in attributes or kind == names.STEPS) and kind in _FAULT_SPANS:
            for fault in summary_fields.faults(attributes):
                self.faults[fault] = self.faults.get(fault, 0) + 1
        if a.OMISSIONS in attributes or kind == names.STEPS:
            for name in summary_fields.omitted(attributes):
                self.omissions[name] = self.omissions.get(name, 0) + 1

    def merge(self, other: Counts) -> None:
        """Add other counts."""
        for sums, (given, sampled) in ((self.tokens, other.tokens), (self.call_tokens, other.call_tokens)):
            sums[0] += given
            sums[1] += sampled
        for own, counted in ((self.faults, other.faults), (self.omissions, other.omissions)):
            for kind, count in counted.items():
                listed = kind if kind in own or len(own) < _MAX_KINDS else OTHER
                own[listed] = own.get(listed, 0) + count


class EpisodeRow(NamedTuple):
    """The row of one episode; times in nanoseconds, duration in seconds, NaN if unknown."""

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
    split: str
    stop_reason: str
    is_return_counted: bool
    """Whether the return is not the value of a reward whose status is not ok."""
    advantage: float = math.nan
    """The advantage that the episode states; NaN without one."""
    share: float = math.nan
    """The share with which samplers kept it; NaN if it states none."""


class UndecidedScoring(NamedTuple):
    """A scoring of the episode without a total, which another process's scoring may replace."""

    when: tuple[int, int]
    """Its start and end time."""
    gradings: tuple[Grading, ...]


class EpisodeSummary(NamedTuple):
    """The figures of one episode; in a stream of spans it replaces all spans of the episode."""

    row: EpisodeRow
    counts: Counts
    gradings: tuple[Grading, ...]
    """Gradings of the last scoring of each step and agent, and of the episode if it has a total."""
    undecided: UndecidedScoring | None
    """The scoring of the episode if it has no total."""
    cost_usd: float | None
    is_scored: bool = False
    """Whether the scoring of the episode has a total."""
    basis: str | None = None
    """Source of the return: episode or steps; None if there is no return."""
    root: str = ""
    """Id of the root span."""
    spans: int = 0
    """Number of distinct spans."""
    duplicates: int = 0
    """Number of repeated spans."""
    invalid_step_rewards: int = 0
    """Number of steps with a reward that is not a finite number, and no scoring."""
    is_rewarded: bool = False
    """Whether a reward of the episode or of a step is recorded; known with figures."""
    has_unplaced_calls: bool = False
    """Whether the step of a model call is not known; known with figures."""
    figures: SummaryFigures | None = None
    """The figures for a study, if they are wanted."""
    scope: Scope = Scope()
    name: str = ""
    """Always empty: the summary is not a span of any kind."""

    @property
    def trace_id(self) -> str:
        """Trace id of the episode."""
        return self.row.trace_id
