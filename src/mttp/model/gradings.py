"""
Grader health: how often each grader was ok, failed or abstained, and the mean of its valid scores.

A grading is one result of one grader: the total of a scoring, or one of its components.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mttp.model.scorings import INVALID_VALUE, Grade, Reward, Spec

__all__ = [
    "OTHER",
    "SCOPES",
    "Graded",
    "GraderFailure",
    "GraderHealth",
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
