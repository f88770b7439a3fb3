"""
Grader health: how often each grader was ok, failed or abstained, and the mean of its valid scores.

A grading is one result of one grader: the total of a scoring, or one of its components.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE, Grade, Reward, Spec

__all__ = [
    "OTHER",
    "SCOPES",
    "Graded",
    "GraderHealth",
    "GraderTally",
    "Grading",
    "Scored",
    "gradings",
    "label",
]

SCOPES: Final = ("episode", "agent", "step", "late")
"""The graded object: an episode, an agent or a step; late for a score that was added afterwards."""
OTHER: Final = "_OTHER"
"""The name for errors of unknown type, and for names beyond the first `MAX_NAMES`."""
MAX_GRADERS: Final = 1000
"""The maximum number of graders in a tally; gradings of further ones are counted as unlisted."""
MAX_NAMES: Final = 100
"""The maximum number of error types, of verdicts and of failed checks per grader."""

_INVALID = (INVALID_VALUE, OUT_OF_RANGE)
_COUNTED = ("ok", "partial", "abstained", "missing")


class Grading(NamedTuple):
    """One result of one grader: the fields from which its health is computed."""

    scope: str
    """episode, agent, step or late."""
    grader: str
    """Name and version of the reward spec, else the grader's name; empty if neither is known."""
    component: str
    """The component, e.g. `safety.no_leak` for one of an included spec; empty for the total."""
    status: str
    """ok, partial, error, abstained or missing."""
    error_type: str | None = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    value: float | None = None
    """The score; None for a relative one, which is comparable only within its group."""
    verdict: str | None = None
    """pass or fail."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks that failed, for a total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderHealth:
    """How often a grader was ok, failed or abstained, and the mean of its valid scores."""

    scope: str
    """episode, agent, step or late."""
    grader: str
    """Name and version of the reward spec, else the grader's name; empty if neither is known."""
    component: str
    """The component, e.g. `safety.no_leak` for one of an included spec; empty for the total."""
    gradings: int = 0
    """The number of gradings of any status."""
    ok: int = 0
    """The number of gradings with a valid score."""
    partial: int = 0
    """The number of totals given although a component failed."""
    error: int = 0
    """The number of gradings with an error, without the invalid ones."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """The number of these by error type, most frequent first."""
    invalid: int = 0
    """The number of gradings whose result was not a finite number or was outside of its range."""
    abstained: int = 0
    """The number of gradings in which the grader abstained."""
    missing: int = 0
    """The number of gradings without a result."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """The number of gradings by verdict, pass or fail."""
    failed_checks: Mapping[str, int] = field(default_factory=dict)
    """The number of failures by check, most frequent first; for a total."""
    count: int = 0
    """The number of scores in the mean: those with status ok that are not relative."""
    mean: float | None = None
    """The mean of these scores; None without any."""
    min: float | None = None
    """The lowest of these scores."""
    max: float | None = None
    """The highest of these scores."""

    @property
    def failed(self) -> int:
        """The number of failed gradings: error, invalid and partial ones."""
        return self.error + self.invalid + self.partial


class _GraderCounts:
    """The gradings of one grader so far."""

    __slots__ = ("checks", "count", "errors", "invalid", "max", "mean", "min", "statuses", "verdicts")

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.invalid = 0
        self.verdicts: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.count = 0
        self.mean = 0.0
        self.min = math.inf
        self.max = -math.inf

    def add(self, grading: Grading) -> None:
        if grading.status in _COUNTED:
            self.statuses[grading.status] += 1
        elif grading.error_type in _INVALID:
            self.invalid += 1
        else:
            _count(self.errors, grading.error_type or OTHER)
        if grading.verdict is not None:
            _count(self.verdicts, grading.verdict)
        for check in grading.failed_checks:
            _count(self.checks, check)
        value = grading.value
        if value is not None and grading.status == "ok" and math.isfinite(value):
            self._take(1, value, value, value)

    def merge(self, other: _GraderCounts) -> None:
        self.statuses += other.statuses
        self.invalid += other.invalid
        for own, theirs in (
            (self.errors, other.errors),
            (self.verdicts, other.verdicts),
            (self.checks, other.checks),
        ):
            for name, count in theirs.items():
                _count(own, name, count)
        if other.count:
            self._take(other.count, other.mean, other.min, other.max)

    def _take(self, count: int, mean: float, low: float, high: float) -> None:
        self.count += count
        if low < self.min:
            self.min = low
        if high > self.max:
            self.max = high
        share = count / self.count
        step = (mean - self.mean) * share
        if math.isinf(step):  # the difference of finite numbers can overflow
            step = mean * share - self.mean * share
        self.mean = min(max(self.mean + step, self.min), self.max)

    def health(self, scope: str, grader: str, component: str) -> GraderHealth:
        error = sum(self.errors.values())
        return GraderHealth(
            scope=scope,
            grader=grader,
            component=component,
            gradings=sum(self.statuses.values()) + error + self.invalid,
            **{status: self.statuses[status] for status in _COUNTED},
            error=error,
            errors=_by_count(self.errors),
            invalid=self.invalid,
            verdicts=_by_count(self.verdicts),
            failed_checks=_by_count(self.checks),
            count=self.count,
            mean=self.mean if self.count else None,
            min=self.min if self.count else None,
            max=self.max if self.count else None,
        )


def _count(counter: Counter[str], name: str, count: int = 1) -> None:
    """Count a name; names beyond the first `MAX_NAMES` are counted as `OTHER`."""
    counter[name if name in counter or len(counter) < MAX_NAMES else OTHER] += count


def _by_count(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


class GraderTally:
    """Counts gradings by grader in bounded memory, and returns the health of all graders."""

    __slots__ = ("_graders", "unlisted")

    def __init__(self) -> None:
        self._graders: dict[tuple[str, str, str], _GraderCounts] = {}
        self.unlisted = 0
        """The number of gradings of graders beyond the first `MAX_GRADERS`."""

    def add(self, grading: Grading) -> None:
        """Count a grading."""
        tally = self._of(grading[:3])
        if tally is None:
            self.unlisted += 1
        else:
            tally.add(grading)

    def merge(self, other: GraderTally) -> None:
        """Add the counts of another tally."""
        self.unlisted += other.unlisted
        for key, theirs in other._graders.items():
            tally = self._of(key)
            if tally is None:
                self.unlisted += sum(theirs.statuses.values()) + sum(theirs.errors.values()) + theirs.invalid
            else:
                tally.merge(theirs)

    def _of(self, key: tuple[str, str, str]) -> _GraderCounts | None:
        counts = self._graders.get(key)
        if counts is None and len(self._graders) < MAX_GRADERS:
            counts = self._graders[key] = _GraderCounts()
        return counts

    def health(self) -> tuple[GraderHealth, ...]:
        """Return the health of each grader, by scope, then name, the total before its components."""
        return tuple(self._graders[key].health(*key) for key in sorted(self._graders, key=_order))


def _order(key: tuple[str, str, str]) -> tuple[int, str, str]:
    scope, grader, component = key
    return (SCOPES.index(scope) if scope in SCOPES else len(SCOPES)), grader, component


class Graded(NamedTuple):
    """The fields of a grade on which its grading depends."""

    name: str
    value: float | None
    status: str
    error_type: str | None
    verdict: str | None
    relative: bool | None
    parts: tuple[Graded, ...]


class Scored(NamedTuple):
    """The fields of a reward on which its gradings depend."""

    value: float | None
    status: str
    components: Mapping[str, float]
    component_statuses: Mapping[str, str]
    error_type: str | None
    verdict: str | None
    failed_checks: tuple[str, ...]
    grader: str | None
    grader_version: str | None
    relative: bool | None
    spec: Spec | None
    grades: tuple[Graded, ...]
    span_id: str
    start_time: int
    end_time: int


def gradings(reward: Reward | Scored, *, scope: str = "episode") -> Iterator[Grading]:
    """
    Yield the gradings of a scoring: its total, then each component and the parts of included specs.

    A user-supplied component with the status error counts as invalid: it was not a finite number.
    """
    grader = label(reward)
    yield Grading(
        scope,
        grader,
        "",
        reward.status,
        reward.error_type,
        None if reward.relative else reward.value,
        reward.verdict,
        reward.failed_checks,
    )
    if reward.grades:
        for grade in reward.grades:
            yield from _of_grade(grade, scope, grader, "")
        return
    for name, value in reward.components.items():
        yield Grading(scope, grader, name, "ok", None, None if reward.relative else value)
    for name, status in reward.component_statuses.items():
        if name not in reward.components:
            yield Grading(scope, grader, name, status, INVALID_VALUE if status == "error" else None)


def label(reward: Reward | Scored) -> str:
    """Return name and version of the reward spec, else the grader's name, else an empty string."""
    spec = reward.spec
    if spec is None:
        return reward.grader or ""
    return spec.name if spec.version is None else f"{spec.name} {spec.version}"


def _of_grade(grade: Grade | Graded, scope: str, grader: str, above: str) -> Iterator[Grading]:
    name = f"{above}{grade.name}"
    value = None if grade.relative else grade.value
    yield Grading(scope, grader, name, grade.status, grade.error_type, value, grade.verdict)
    for part in grade.parts:
        yield from _of_grade(part, scope, grader, f"{name}.")
