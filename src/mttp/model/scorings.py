"""Scorings as frozen values: what was paid, by which rule, and what it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any, Final

from mttp.model.values import Value

if TYPE_CHECKING:
    from mttp.model.calls import Call

__all__ = ["INVALID_VALUE", "MISSING_INPUT", "OUT_OF_RANGE", "Grade", "GradingUsage", "Reward", "Spec"]

INVALID_VALUE: Final = "invalid_value"
"""Error type of a result that is not a finite number."""
OUT_OF_RANGE: Final = "out_of_range"
"""Error type of a result beyond its range."""
MISSING_INPUT: Final = "missing_input"
"""Error type of a sample that lacks an input."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Spec(Value):
    """Which reward spec paid: its name, version and digests."""

    name: str
    """The spec's name."""
    version: str | None = None
    """The spec's version."""
    sha256: str | None = None
    """Digest of the spec document."""
    code_sha256: str | None = None
    """Digest of the code that the spec uses."""
    code_coverage: str | None = None
    """How much of that code the digest covers: full, partial or opaque."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GradingUsage(Value):
    """What graders' own calls of models came to; none of it is the policy's."""

    calls: int = 0
    """How many calls were recorded."""
    input_tokens: int = 0
    """Tokens that the models read, of the calls that say so."""
    output_tokens: int = 0
    """Tokens that the models wrote, of the calls that say so."""
    duration: float = 0.0
    """Seconds that the calls took, added up."""
    cost: float | None = None
    """Sum of what graders state as `cost` in their evidence, in their currency; None where none does."""

    @classmethod
    def total(cls, found: Iterable[GradingUsage]) -> GradingUsage:
        """Several as one."""
        parts = list(found)
        costs = [one.cost for one in parts if one.cost is not None]
        return cls(
            calls=sum(one.calls for one in parts),
            input_tokens=sum(one.input_tokens for one in parts),
            output_tokens=sum(one.output_tokens for one in parts),
            duration=fsum(one.duration for one in parts),
            cost=fsum(costs) if costs else None,
        )

    @classmethod
    def of(cls, calls: Iterable[Call], evidence: object = None) -> GradingUsage:
        """What these calls came to, with the cost that the evidence states."""
        made = list(calls)
        cost = evidence.get("cost") if isinstance(evidence, Mapping) else None
        known = isinstance(cost, (int, float)) and not isinstance(cost, bool) and isfinite(cost)
        return cls(
            calls=len(made),
            input_tokens=sum(call.input_tokens or 0 for call in made),
            output_tokens=sum(call.output_tokens or 0 for call in made),
            duration=fsum(((call.end_time or 0) - (call.start_time or 0)) / 1e9 for call in made),
            cost=float(cost) if known else None,  # type: ignore[arg-type]  # it is a number then
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Grade(Value):
    """One component's part in a scoring: its score, and what it counted for."""

    name: str
    """The component's name in its reward spec."""
    kind: str
    """verifier, check, rubric, shaping, penalty, judge or human."""
    value: float | None = None
    """Its score before the weight; the aggregate of several calls. None unless `status` is ok."""
    status: str = "ok"
    """ok, error, abstained or missing: an error is never a zero."""
    error: str | None = None
    """What went wrong, where the status is error."""
    error_type: str | None = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    weight: float | None = None
    """Factor of the value in a sum; None for a check."""
    contribution: float | None = None
    """What it added to the reward; None where it did not count, or where nothing is added up."""
    verdict: str | None = None
    """pass or fail, for a verifier or a check."""
    range: tuple[float, float] | None = None
    """Lowest and highest value that it may give."""
    clipped: bool = False
    """Whether the value was beyond the range and became its nearest end."""
    late: bool = False
    """Whether a call took longer than it may, and could not be stopped."""
    repeats: tuple[float, ...] = ()
    """The values of all its calls, where there were several."""
    spread: float | None = None
    """Their standard deviation (ddof 1)."""
    label: str | None = None
    """The value in a word, as the component says it."""
    explanation: str | None = None
    """Why, as the component says it."""
    evidence: Any = None
    """What it was based on, as the component says it; anything that JSON can say."""
    relative: bool | None = None
    """Whether the value only means something within its group."""
    parts: tuple[Grade, ...] = ()
    """The grades of an included spec."""
    calls: tuple[Call, ...] = ()
    """Calls of models and tools that the component made, in order of start."""
    start_time: int | None = field(default=None, compare=False)
    """When the component was called."""
    end_time: int | None = field(default=None, compare=False)
    """When it had answered."""

    @property
    def duration(self) -> float:
        """Seconds that its calls took."""
        return ((self.end_time or 0) - (self.start_time or 0)) / 1e9

    @property
    def usage(self) -> GradingUsage:
        """What its own calls of models came to, those of its parts included."""
        own = GradingUsage.of(self.calls, self.evidence)
        return GradingUsage.total([own, *(part.usage for part in self.parts)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Reward(Value):
    """One scoring: the scalar that was paid, what it was made of, and whether it can be trusted."""

    value: float | None = None
    """The scalar that was paid, before any group normalization; `status` says whether it can be trusted."""
    status: str = "missing"
    """ok, partial (paid although a component failed), error, abstained or missing."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Each component's score by name; one that has no number is in `component_statuses` instead."""
    component_statuses: Mapping[str, str] = field(default_factory=dict)
    """Status by name of the components that are not ok."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Each component's weight by name."""
    error: str | None = None
    """What went wrong, where the status is error."""
    error_type: str | None = None
    """The exception's class, `invalid_value`, `out_of_range` or `missing_input`."""
    raw: str | None = None
    """What was given as the value, as text, where it is not a finite number."""
    range: tuple[float, float] | None = None
    """Lowest and highest value that the rule can pay."""
    mismatch: bool = False
    """Whether the value differs from the weighted sum of the components."""
    verdict: str | None = None
    """pass or fail, where a verifier decided."""
    failed_checks: tuple[str, ...] = ()
    """Names of the hard constraints that were broken."""
    spec: Spec | None = None
    """The reward spec that paid."""
    grader: str | None = None
    """Name of the verifier, judge or person that scored."""
    grader_kind: str | None = None
    """verifier, check, rubric, shaping, penalty, judge or human."""
    grader_version: str | None = None
    """The grader's version."""
    relative: bool | None = None
    """Whether the score only means something within its group."""
    label: str | None = None
    """The score in words."""
    explanation: str | None = None
    """Why the grader scored as it did."""
    clipped: bool = False
    """Whether the value was beyond the range and became its nearest end."""
    evidence: Any = None
    """What the scoring was based on; of a relative one the group, its order and the judge."""
    grades: tuple[Grade, ...] = ()
    """Each component's grade, where a reward spec scored."""
    calls: tuple[Call, ...] = ()
    """Calls of models and tools that were made for it, but for those of its grades; in order of start."""
    span_id: str = field(default="", compare=False)
    """The scoring's span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When scoring began."""
    end_time: int | None = field(default=None, compare=False)
    """When scoring ended."""

    @property
    def usage(self) -> GradingUsage:
        """What the calls of models that were made for it came to, those of its grades included."""
        return GradingUsage.total([GradingUsage.of(self.calls), *(grade.usage for grade in self.grades)])

    def __post_init__(self) -> None:
        if self.value is not None and self.status == "missing":
            object.__setattr__(self, "status", "ok")
