"""
Grader health: how often each grader was ok, failed or abstained, and the mean of its valid scores.

A grading is one result of one grader: the total of a scoring, or one of its components.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE, Grade, Reward, Spec

__all__ = [
    "OTHER",
    "SCOPES",
    "Graded",
    "GraderFailure",
    "GraderHealth",
    "GraderTally",
    "Grading",
    "Scored",
    "gradings",
    "label",
    "made_batch_raise",
]

SCOPES: Final = ("episode", "agent", "step", "late")
"""The graded object: an episode, an agent or a step; late for a score that was added afterwards."""
OTHER: Final = "_OTHER"
"""The name for errors of unknown type, and for names beyond the first `MAX_NAMES`."""
MAX_GRADERS: Final = 1000
"""The maximum number of graders in a tally; gradings of further ones are counted as unlisted."""
MAX_NAMES: Final = 100
"""The maximum number of error types, of errors, of verdicts and of failed checks per grader."""
MAX_MESSAGE: Final = 200
"""The maximum length of an error's message."""
MAX_RAISED: Final = 3
"""The maximum number of episodes that are named as those that made a batch raise."""

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
    error: str | None = None
    """The error message."""
    episode: str = ""
    """The trace id of the graded episode."""
    time: int = 0
    """The start of the scoring, in nanoseconds since the Unix epoch."""
    raised: bool = False
    """Whether this sample of a batch made the component raise; False if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderFailure:
    """One error of a grader: its class and message, and where it occurred."""

    error_type: str
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    message: str
    """The beginning of the message; empty if it is not known."""
    count: int
    """The number of gradings with this error."""
    first: str
    """The trace id of the first episode with it."""
    raised_by: tuple[str, ...] = ()
    """The trace ids of up to three episodes that made a whole batch raise."""


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
    failures: tuple[GraderFailure, ...] = ()
    """The errors, also of invalid gradings, by class and message, most frequent first."""
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


class _FailureCounts(NamedTuple):
    """The gradings with one error so far; places are start times and trace ids."""

    times: int
    first: tuple[int, str]
    raised: set[tuple[int, str]]

    def merged(self, other: _FailureCounts) -> _FailureCounts:
        raised = set(sorted(self.raised | other.raised)[:MAX_RAISED])
        return _FailureCounts(self.times + other.times, min(self.first, other.first), raised)


class _GraderCounts:
    """The gradings of one grader so far."""

    __slots__ = (
        *("checks", "count", "errors", "failures", "invalid", "max", "mean", "min", "statuses", "verdicts"),
    )

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.failures: dict[tuple[str, str], _FailureCounts] = {}
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
        else:
            self._fail(grading)
        if grading.verdict is not None:
            _count(self.verdicts, grading.verdict)
        for check in grading.failed_checks:
            _count(self.checks, check)
        value = grading.value
        if value is not None and grading.status == "ok" and math.isfinite(value):
            self._take(1, value, value, value)

    def _fail(self, grading: Grading) -> None:
        kind = grading.error_type or OTHER
        if kind in _INVALID:
            self.invalid += 1
        else:
            _count(self.errors, kind)
        message = f"{grading.error or kind}".removeprefix(kind).removeprefix(": ")[:MAX_MESSAGE]
        place = (grading.time, grading.episode)
        self._add_failure((kind, message), _FailureCounts(1, place, {place} if grading.raised else set()))

    def _add_failure(self, key: tuple[str, str], more: _FailureCounts) -> None:
        if key not in self.failures and len(self.failures) >= MAX_NAMES:
            key = (OTHER, "")
        before = self.failures.get(key)
        self.failures[key] = more if before is None else before.merged(more)

    def merge(self, other: _GraderCounts) -> None:
        self.statuses += other.statuses
        self.invalid += other.invalid
        for key, more in other.failures.items():
            self._add_failure(key, more)
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
            failures=tuple(
                GraderFailure(
                    error_type=kind,
                    message=message,
                    count=failure.times,
                    first=failure.first[1],
                    raised_by=tuple(episode for _, episode in sorted(failure.raised)),
                )
                for (kind, message), failure in sorted(
                    self.failures.items(), key=lambda item: (-item[1].times, item[0])
                )
            ),
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
    parts: tuple[Graded, ...]
    evidence: Any
    status: str
    value: float | None = None
    error_type: str | None = None
    verdict: str | None = None
    relative: bool | None = None
    error: str | None = None


class Scored(NamedTuple):
    """The fields of a reward on which its gradings depend."""

    components: Mapping[str, float]
    component_statuses: Mapping[str, str]
    spec: Spec | None
    span_id: str
    start_time: int
    end_time: int
    status: str
    value: float | None = None
    error_type: str | None = None
    verdict: str | None = None
    failed_checks: tuple[str, ...] = ()
    grader: str | None = None
    grader_version: str | None = None
    relative: bool | None = None
    error: str | None = None
    grades: tuple[Graded, ...] = ()


def gradings(reward: Reward | Scored, *, scope: str = "episode", episode: str = "") -> Iterator[Grading]:
    """
    Yield the gradings of a scoring: its total, then each component and the parts of included specs.

    `episode` is the graded episode's trace id.
    A user-supplied component with the status error counts as invalid: it was not a finite number.
    """
    place = _Place(scope, label(reward), episode, reward.start_time or 0)
    yield place.grading(
        "",
        reward.status,
        reward.error_type,
        None if reward.relative else reward.value,
        reward.verdict,
        reward.failed_checks,
        error=reward.error,
    )
    for grade in reward.grades:
        yield from _of_grade(grade, place, "")
    graded = {grade.name for grade in reward.grades}
    for name, value in reward.components.items():
        if name not in graded:
            yield place.grading(name, "ok", None, None if reward.relative else value)
    for name, status in reward.component_statuses.items():
        if name not in reward.components and name not in graded:
            yield place.grading(name, status, INVALID_VALUE if status == "error" else None)


class _Place(NamedTuple):
    """What all gradings of a scoring have in common."""

    scope: str
    grader: str
    episode: str
    time: int

    def grading(self, component: str, *facts: Any, **more: Any) -> Grading:
        """Return the grading of one component; `facts` are from its status on."""
        grading = Grading(self.scope, self.grader, component, *facts, **more)
        return grading._replace(episode=self.episode, time=self.time)


def label(reward: Reward | Scored) -> str:
    """Return name and version of the reward spec, else the grader's name, else an empty string."""
    spec = reward.spec
    if spec is None:
        return reward.grader or ""
    return spec.name if spec.version is None else f"{spec.name} {spec.version}"


def _of_grade(grade: Grade | Graded, place: _Place, above: str) -> Iterator[Grading]:
    name = f"{above}{grade.name}"
    value = None if grade.relative else grade.value
    yield place.grading(
        name,
        grade.status,
        grade.error_type,
        value,
        grade.verdict,
        error=grade.error,
        raised=grade.status == "error" and made_batch_raise(grade.evidence),
    )
    for part in grade.parts:
        yield from _of_grade(part, place, f"{name}.")


def made_batch_raise(evidence: Any) -> bool:
    """Return whether the evidence of a failed grade says that its sample made the batch raise."""
    batch = evidence.get("batch") if isinstance(evidence, Mapping) else None
    return isinstance(batch, Mapping) and batch.get("raised") == batch.get("row") is not None
