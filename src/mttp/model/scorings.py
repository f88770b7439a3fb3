"""Rewards, grades of their components, and the identity of reward specs as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final

from mttp.model.values import Value
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.model.calls import Call

__all__ = ["INVALID_VALUE", "MISSING_INPUT", "OUT_OF_RANGE", "Grade", "GradingUsage", "Reward", "Spec"]

INVALID_VALUE: Final = "invalid_value"
"""Error type of a result that is not a finite number."""
OUT_OF_RANGE: Final = "out_of_range"
"""Error type of a result outside of its range."""
MISSING_INPUT: Final = "missing_input"
"""Error type of a sample that lacks an input."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Spec(Value):
    """The identity of a reward spec: its name, version and digests."""

    name: Annotated[str, a.SPEC_NAME]
    """The spec's name."""
    version: Annotated[str | None, a.SPEC_VERSION] = None
    """The spec's version."""
    sha256: Annotated[str | None, a.SPEC_SHA256] = None
    """SHA-256 of the spec document."""
    code_sha256: Annotated[str | None, a.SPEC_CODE_SHA256] = None
    """Digest of the code that the spec uses, with its method: `files:1:` and SHA-256."""
    code_coverage: Annotated[str | None, a.SPEC_CODE_COVERAGE] = None
    """How much of that code `code_sha256` covers: full, partial or opaque."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GradingUsage(Value):
    """The usage of graders' own calls, without the policy's calls."""

    calls: int = 0
    """The number of recorded calls."""
    input_tokens: int = 0
    """The sum of input tokens, over the calls that report them."""
    output_tokens: int = 0
    """The sum of output tokens, over the calls that report them."""
    duration: float = 0.0
    """The sum of the calls' durations, in seconds."""
    cost: float | None = None
    """The sum of `cost` in the graders' evidence, in their currency; None if no evidence has it."""

    @classmethod
    def total(cls, usages: Iterable[GradingUsage]) -> GradingUsage:
        """Return the sum of several usages."""
        parts = list(usages)
        costs = [usage.cost for usage in parts if usage.cost is not None]
        return cls(
            calls=sum(usage.calls for usage in parts),
            input_tokens=sum(usage.input_tokens for usage in parts),
            output_tokens=sum(usage.output_tokens for usage in parts),
            duration=fsum(usage.duration for usage in parts),
            cost=fsum(costs) if costs else None,
        )

    @classmethod
    def of(cls, calls: Iterable[Call], evidence: object = None) -> GradingUsage:
        """Return the usage of these calls, with the `cost` of the evidence."""
        calls = list(calls)
        cost = evidence.get("cost") if isinstance(evidence, Mapping) else None
        known = isinstance(cost, (int, float)) and not isinstance(cost, bool) and isfinite(cost)
        return cls(
            calls=len(calls),
            input_tokens=sum(call.input_tokens or 0 for call in calls),
            output_tokens=sum(call.output_tokens or 0 for call in calls),
            duration=fsum(((call.end_time or 0) - (call.start_time or 0)) / 1e9 for call in calls),
            cost=float(cost) if known else None,  # type: ignore[arg-type]  # a number if known
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Grade(Value):
    """The result of one component of a reward spec: its score and its contribution to the reward."""

    name: str
    """The component's name in the reward spec."""
    kind: Annotated[str, a.GRADER_KIND]
    """verifier, check, rubric, shaping, penalty, judge or human."""
    value: Annotated[float | None, a.REWARD_VALUE] = None
    """The score before weighting, aggregated over several calls; None unless `status` is ok."""
    status: Annotated[str, a.REWARD_STATUS] = "ok"
    """ok, error, abstained or missing; a score of zero has the status ok."""
    error: Annotated[str | None, a.REWARD_ERROR] = None
    """The error message, if the status is error."""
    error_type: Annotated[str | None, a.REWARD_ERROR_TYPE] = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    weight: float | None = None
    """The factor of the value in a sum; None for a check."""
    contribution: Annotated[float | None, a.REWARD_CONTRIBUTION] = None
    """The part of the reward from this component; None if it did not count, or the reward is not a sum."""
    verdict: Annotated[str | None, a.REWARD_VERDICT] = None
    """pass or fail, for a verifier or a check."""
    range: Annotated[tuple[float, float] | None, a.REWARD_RANGE] = None
    """The lowest and highest value of the component."""
    clipped: Annotated[bool, a.REWARD_CLIPPED] = False
    """Whether the value was outside of the range and was clipped."""
    late: Annotated[bool, a.REWARD_LATE] = False
    """Whether a call exceeded its time limit and could not be stopped."""
    repeats: Annotated[tuple[float, ...], a.REWARD_REPEATS] = ()
    """The values of all calls, for a component that is called several times."""
    spread: Annotated[float | None, a.REWARD_SPREAD] = None
    """The standard deviation of `repeats` (ddof 1)."""
    label: Annotated[str | None, a.GEN_AI_EVALUATION_SCORE_LABEL] = None
    """The component's label for the value."""
    explanation: Annotated[str | None, a.GEN_AI_EVALUATION_EXPLANATION] = None
    """The component's explanation of the value."""
    evidence: Annotated[Any, a.REWARD_EVIDENCE] = None
    """The component's evidence for the value, as JSON data."""
    relative: Annotated[bool | None, a.GRADER_RELATIVE] = None
    """Whether the value is comparable only within its group."""
    parts: tuple[Grade, ...] = ()
    """The grades of an included spec."""
    calls: tuple[Call, ...] = ()
    """The component's calls of models and tools, in order of start."""
    start_time: int | None = field(default=None, compare=False)
    """The start of the component's call, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end of the component's call, in nanoseconds since the Unix epoch."""

    @property
    def duration(self) -> float:
        """Seconds from `start_time` to `end_time`."""
        return ((self.end_time or 0) - (self.start_time or 0)) / 1e9

    @property
    def scaled_parts(self) -> tuple[Grade, ...]:
        """The parts with weights and contributions in the scale of this grade's own contribution."""
        scale = self.weight
        if self.value and self.contribution is not None:
            scale = self.contribution / self.value
        is_counted = scale is not None and self.contribution is not None
        return tuple(
            replace(
                part,
                weight=part.weight if part.weight is None or scale is None else part.weight * scale,
                contribution=part.contribution * scale  # type: ignore[operator]  # it is not None
                if is_counted and part.contribution is not None
                else None,
            )
            for part in self.parts
        )

    @property
    def usage(self) -> GradingUsage:
        """The usage of the component's calls, including those of its parts."""
        usage = GradingUsage.of(self.calls, self.evidence)
        return GradingUsage.total([usage, *(part.usage for part in self.parts)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Reward(Value):
    """The result of one scoring: the reward, its status and its components."""

    value: Annotated[float | None, a.REWARD_VALUE] = None
    """The reward before group normalization; valid if `status` is ok."""
    status: Annotated[str, a.REWARD_STATUS] = "missing"
    """ok, partial (given although a component failed or abstained), error, abstained or missing."""
    components: Mapping[str, float] = field(default_factory=dict)
    """The score of each component by name; a component without a number is in `component_statuses`."""
    component_statuses: Mapping[str, str] = field(default_factory=dict)
    """The status by name of the components that are not ok."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each component by name."""
    error: Annotated[str | None, a.REWARD_ERROR] = None
    """The error message, if the status is error."""
    error_type: Annotated[str | None, a.REWARD_ERROR_TYPE] = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    raw: Annotated[str | None, a.REWARD_RAW] = None
    """The invalid value as text, if a value was given that is not a finite number."""
    range: Annotated[tuple[float, float] | None, a.REWARD_RANGE] = None
    """The lowest and highest possible reward."""
    mismatch: Annotated[bool, a.REWARD_MISMATCH] = False
    """Whether the value differs from the weighted sum of the components."""
    verdict: Annotated[str | None, a.REWARD_VERDICT] = None
    """pass or fail, if a verifier decided."""
    failed_checks: Annotated[tuple[str, ...], a.REWARD_FAILED_CHECKS] = ()
    """Names of the checks that failed."""
    spec: Spec | None = None
    """The reward spec that scored."""
    grader: Annotated[str | None, a.GRADER_NAME] = None
    """The name of the verifier, judge or person that scored."""
    grader_kind: Annotated[str | None, a.GRADER_KIND] = None
    """verifier, check, rubric, shaping, penalty, judge or human."""
    grader_version: Annotated[str | None, a.GRADER_VERSION] = None
    """The grader's version."""
    relative: Annotated[bool | None, a.GRADER_RELATIVE] = None
    """Whether the score is comparable only within its group."""
    label: Annotated[str | None, a.GEN_AI_EVALUATION_SCORE_LABEL] = None
    """The grader's label for the score."""
    explanation: Annotated[str | None, a.GEN_AI_EVALUATION_EXPLANATION] = None
    """The grader's explanation of the score."""
    clipped: Annotated[bool, a.REWARD_CLIPPED] = False
    """Whether the value was outside of the range and was clipped."""
    evidence: Annotated[Any, a.REWARD_EVIDENCE] = None
    """The evidence for the score; for a relative score the group, its order and the judge."""
    grades: tuple[Grade, ...] = ()
    """The grade of each component, if a reward spec scored; else of those that failed or called a model."""
    calls: tuple[Call, ...] = ()
    """The calls of models and tools during scoring, without those of `grades`, in order of start."""
    span_id: str = field(default="", compare=False)
    """The span id of the scoring, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start of scoring, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end of scoring, in nanoseconds since the Unix epoch."""

    @property
    def all_grades(self) -> tuple[Grade, ...]:
        """The grades, and one without a kind for each other component."""
        graded = {grade.name for grade in self.grades}
        rest = [
            Grade(
                name=name,
                kind="",
                value=(value := self.components.get(name)),
                status=self.component_statuses.get(name, "ok"),
                weight=(weight := self.weights.get(name)),
                contribution=None if value is None or weight is None else value * weight,
            )
            for name in {**self.components, **self.component_statuses}
            if name not in graded
        ]
        return (*self.grades, *rest)

    @property
    def usage(self) -> GradingUsage:
        """The usage of the calls during scoring, including those of `grades`."""
        return GradingUsage.total([GradingUsage.of(self.calls), *(grade.usage for grade in self.grades)])

    def __post_init__(self) -> None:
        if self.value is not None and type(self.status) is str and self.status == "missing":
            object.__setattr__(self, "status", "ok")
