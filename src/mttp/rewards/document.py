"""The schema of a reward spec file, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    StringConstraints,
    Tag,
    model_validator,
)

from mttp.rewards.versions import full

FORMAT: Final = "reward-spec/1"
"""The value of `mttp` in a spec file."""

Kind = Literal["verifier", "check", "rubric", "shaping", "penalty", "judge"]
"""The role of a component in the reward; `ComponentEntry.kind` describes each."""
Combine = Literal["gated", "weighted_sum", "product", "minimum", "lexicographic"]
"""The methods that combine component values to a reward."""
CaseKind = Literal["valid", "unusual", "near-miss", "exploit", "violation"]
"""What a case tests: a right answer, a rare form of one, an almost right one, a cheat, a failed check."""
InputType = Literal["string", "number", "integer", "boolean", "array", "object", "any", "episode"]
"""The type of an input, a JSON type or a recorded `mttp.Episode`; a `?` after it makes it optional."""


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ValueError("write the lowest value first")
    return bounds


def _around_zero(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] <= 0.0 <= bounds[1]:
        raise ValueError("the bounds must include 0, the sum at an episode's start")
    return bounds


def _is_mapping(kind: str, other: str) -> Discriminator:
    """Return a discriminator between mappings and other values."""
    return Discriminator(lambda value: kind if isinstance(value, (dict, _DocumentPart)) else other)


_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
_Version = Annotated[
    str,
    StringConstraints(pattern=r"^\d+\.\d+(\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)?$"),
    AfterValidator(full),
]
_Target = Annotated[str, StringConstraints(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$")]
_Number = Annotated[float, Strict()]
_Flag = Annotated[bool, Strict()]
_Whole = Annotated[int, Strict()]
_Relative = Annotated[
    Annotated[_Flag, Tag("flag")] | Annotated[Literal["pairwise"], Tag("word")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "flag"),
]
_Range = Annotated[tuple[_Number, _Number], AfterValidator(_ordered)]
_Criteria = Annotated[
    dict[_Name, Annotated[_Number, Field(gt=0)]],
    BeforeValidator(
        lambda criteria: dict.fromkeys(criteria, 1.0) if isinstance(criteria, (list, tuple)) else criteria,
        json_schema_input_type=dict[str, float] | list[str],
    ),
]
_InputName = Annotated[str, StringConstraints(pattern=r"^[^\W\d]\w*$")]
_Input = Annotated[
    str, StringConstraints(pattern=r"^(string|number|integer|boolean|array|object|any|episode)\??$")
]


class _DocumentPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class ComponentEntry(_DocumentPart):
    """One component: a user's function and its role in the reward."""

    name: _Name
    """The name, unique among the components and includes of a spec."""
    kind: Kind
    """
    verifier: whether the task succeeded. check: a hard constraint, which gates. rubric: a graded criterion.
    shaping: a small reward for progress. penalty: subtracted. judge: a model's or a person's opinion.
    """
    use: _Target | None = None
    """`module:function`, in the spec's directory or installed. None for a function given in Python."""
    description: str = ""
    weight: _Number = 1.0
    """The factor of the value in a sum; for a penalty its sign is ignored, for a check it has no effect."""
    range: _Range | None = None
    """The lowest and highest value of the function; a value outside is clipped or invalid."""
    clip: _Flag = False
    """Whether a value outside of `range` is clipped and counted; else it makes the sample invalid."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Constant keyword arguments of the function."""
    values: dict[str, _Number] = Field(default_factory=dict)
    """The value of each label that the function returns; their range is the default of `range`."""
    criteria: _Criteria = Field(default_factory=dict)
    """
    Weights by name of criteria that one call grades, returning a mapping; names in a list weigh equally.
    Each criterion is a grade below the component's, whose value is their weighted mean.
    """
    arity: Literal["sample", "batch", "output-truth"] = "sample"
    """
    sample: the function takes inputs by name.
    batch: it takes lists of inputs and returns a list, as TRL's `(prompts, completions, **kwargs)`.
    output-truth: it takes the first and the second input by position.
    """
    scope: Literal["terminal", "step"] = "terminal"
    """Whether it scores an episode's end or each of its steps."""
    relative: _Relative = False
    """
    Whether its values are comparable only within a group, as ranks are.
    pairwise: it takes two members at a time and returns how much the first is better.
    """
    repeats: Annotated[_Whole, Field(ge=1, le=1000)] = 1
    """The number of calls for one sample, for noisy judges."""
    aggregate: Literal["mean", "median", "minimum", "maximum", "majority"] = "mean"
    """The aggregation of repeated calls."""
    timeout: Annotated[_Number, Field(gt=0)] | None = None
    """The time limit of one call in seconds."""
    isolation: Literal["none", "process"] = "none"
    """process: calls run in a worker process that is killed at the time limit."""
    priority: _Whole | None = None
    """The rank under `lexicographic`, lowest first."""
    threshold: _Number | None = None
    """The lowest passing value of a verifier or a check; by default the highest of `range`, else 1."""
    always: _Flag = False
    """Whether a judge, or a relative or isolated component, is called even if a gate has decided."""
    depends: tuple[str, ...] = ()
    """Files beside the spec whose content affects scores."""
    version: str | None = None
    """The version of its behaviour, if its code can't be read."""

    @model_validator(mode="before")
    @classmethod
    def _range_of_values(cls, fields: Any) -> Any:
        """Set the range to that of the labels' values, unless it is stated."""
        values = fields.get("values") if isinstance(fields, dict) else None
        if not isinstance(values, dict) or not values or fields.get("range") is not None:
            return fields
        numbers = [value for value in values.values() if isinstance(value, (int, float))]
        return {**fields, "range": (min(numbers), max(numbers))} if len(numbers) == len(values) else fields


class SpecInclude(_DocumentPart):
    """An include: another spec as one component of this one."""

    spec: str
    """The path of its file, or the name of an installed spec."""
    version: str | None = None
    """The version constraint, such as `^1.2`, `>=1.2,<2` or `1.2.0`; lint warns without one."""
    as_: _Name = Field(alias="as")
    """The component's name in this spec."""
    kind: Kind = "rubric"
    weight: _Number = 1.0
    priority: _Whole | None = None


class Bounds(_DocumentPart):
    """The expected bounds of a number."""

    min: _Number | None = None
    max: _Number | None = None
    equals: _Number | None = None
    tolerance: Annotated[_Number, Field(ge=0)] = 1e-9
    """The absolute tolerance of all three bounds."""


_Value = Annotated[
    Annotated[_Number, Tag("number")] | Annotated[Bounds, Tag("bounds")], _is_mapping("bounds", "number")
]


class Expected(_DocumentPart):
    """The expected result of a case; omitted keys are not compared."""

    value: _Value | None = None
    status: Literal["ok", "partial", "error", "abstained", "missing"] | None = None
    verdict: Literal["pass", "fail"] | None = None
    failed_checks: tuple[str, ...] | None = None
    components: dict[str, _Value] = Field(default_factory=dict)


class SpecCase(_DocumentPart):
    """A test case: one sample and its expected result."""

    name: _Name
    kind: CaseKind
    description: str = ""
    input: dict[str, Any]
    """The sample; for a case with `steps`, that of the episode's end."""
    steps: tuple[dict[str, Any], ...] = ()
    """The samples of an episode's steps; `expect` is then about the whole episode."""
    expect: Expected | None = None
    human: _Number | None = None
    """A person's score of the sample."""


class Better(_DocumentPart):
    """The expectation that one case gets a higher reward than another."""

    better: str
    than: str
    by: Annotated[_Number, Field(ge=0)] = 0.0
    """The least margin; 0 requires any margin above 0."""


class CombiningFunction(_DocumentPart):
    """A user's function as `combine`."""

    use: _Target | None = None
    """`module:function`; None for a function given in Python."""
    version: str | None = None
    """The version of its behaviour, if its code can't be read."""


_Combined = Annotated[
    Annotated[Combine, Tag("name")] | Annotated[CombiningFunction, Tag("function")],
    _is_mapping("function", "name"),
]
_Cases = Annotated[
    Annotated[SpecCase, Tag("case")] | Annotated[Better, Tag("better")],
    Discriminator(lambda value: "better" if _has(value, "better") else "case"),
]


def _has(value: Any, key: str) -> bool:
    return key in value if isinstance(value, dict) else hasattr(value, key)


class SpecDocument(_DocumentPart):
    """The keys of a reward spec file."""

    mttp: Literal["reward-spec/1"] = FORMAT
    name: _Name
    version: _Version
    """The semantic version, where 1.2 is 1.2.0; `mttp spec diff` tells the bump that a change requires."""
    description: str = ""
    inputs: dict[_InputName, _Input] = Field(default_factory=dict)
    """The types of a sample's inputs by name; see `InputType`."""
    components: tuple[ComponentEntry, ...] = ()
    include: tuple[SpecInclude, ...] = ()
    combine: _Combined = "gated"
    """The method that combines values to a reward, or `{use: "module:function"}`."""
    partial_credit: _Number | None = None
    """Under `gated`, the highest reward of a sample whose verifier failed; by default it gets the floor."""
    range: _Range | None = None
    """The lowest and highest reward; by default derived from the components."""
    clip: _Flag = False
    """Whether a reward outside of `range` is clipped and counted; else it is invalid."""
    step_total: Annotated[_Range, AfterValidator(_around_zero)] | None = None
    """The lowest and highest sum of an episode's step rewards; the step that would exceed it is clipped."""
    floor: _Number | None = None
    """The reward of a sample that fails a check; by default the lowest of `range`."""
    on_invalid: Literal["invalid", "floor", "skip"] = "invalid"
    """
    The reward of a sample with a component that raised, abstained, timed out or returned NaN.
    invalid: no reward. floor: the floor, with a status that is not ok.
    skip: that of the other components, with weights scaled up to the same total; gates are never skipped.
    """
    horizon: Annotated[_Whole, Field(ge=1)] | None = None
    """The maximum number of steps of an episode; it affects no score, only lint rules about step rewards."""
    depends: tuple[str, ...] = ()
    """Files beside the spec whose content affects scores."""
    distributions: tuple[str, ...] = ()
    """Installed distributions whose versions affect scores; listing one does not trust its code."""
    cases: tuple[_Cases, ...] = ()
    """Test cases, and expected orders among them."""
