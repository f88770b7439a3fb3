"""The document of a reward spec: what a file may say, before any code is looked at."""

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

__all__ = [
    "FORMAT",
    "Better",
    "Bounds",
    "SpecCase",
    "CaseKind",
    "Combine",
    "ComponentEntry",
    "Expected",
    "CombiningFunction",
    "SpecInclude",
    "InputType",
    "Kind",
    "SpecDocument",
]

FORMAT: Final = "reward-spec/1"
"""What a document says under `mttp`, so that it is known for what it is."""

Kind = Literal["verifier", "check", "rubric", "shaping", "penalty", "judge"]
"""What part a component has in the reward; see the fields of `ComponentEntry`."""
Combine = Literal["gated", "weighted_sum", "product", "minimum", "lexicographic"]
"""How the values of the components make one, where no check failed."""
CaseKind = Literal["valid", "unusual", "near-miss", "exploit", "violation"]
"""What a case shows: a right answer, a rare form of it, nearly one, a cheat, a broken check."""
InputType = Literal["string", "number", "integer", "boolean", "array", "object", "any", "episode"]
"""Type of an input, in JSON's words, or a recorded `mttp.Episode`; a `?` behind it makes it optional."""


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ValueError("the lowest value comes first")
    return bounds


def _around_zero(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] <= 0.0 <= bounds[1]:
        raise ValueError("an episode begins at 0, which must lie within")
    return bounds


def _is_mapping(kind: str, other: str) -> Discriminator:
    """Tells what is written as a mapping from what is not."""
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
        lambda given: dict.fromkeys(given, 1.0) if isinstance(given, (list, tuple)) else given,
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
    """One component: a function of the user's and what it counts for."""

    name: _Name
    """Unique among the components and includes of a spec."""
    kind: Kind
    """
    verifier: did the task succeed. check: a hard constraint, which gates. rubric: a graded criterion.
    shaping: a small signal on the way. penalty: what is taken off. judge: a model's or a person's opinion.
    """
    use: _Target | None = None
    """`module:function`; the module beside the spec, or installed. None for a function given in Python."""
    description: str = ""
    weight: _Number = 1.0
    """Factor of the value in a sum, negated for a penalty; of a check it has no meaning."""
    range: _Range | None = None
    """Lowest and highest value that the function gives; a value beyond is clipped or invalid."""
    clip: _Flag = False
    """Whether a value beyond `range` becomes its nearest end, counted; else it makes the sample invalid."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments that are the same for every sample."""
    values: dict[str, _Number] = Field(default_factory=dict)
    """What each label is worth that the function returns; the range is then theirs, unless stated."""
    criteria: _Criteria = Field(default_factory=dict)
    """
    Weight by name of what one call answers at once, with a mapping by name; a list weighs all alike.
    Each criterion is a grade below the component's, whose value is their weighted mean.
    """
    arity: Literal["sample", "batch", "output-truth"] = "sample"
    """
    sample: it takes what it names of the inputs.
    batch: it takes lists of them and gives a list, as TRL's `(prompts, completions, **kwargs)`.
    output-truth: it takes the first input and the second by position.
    """
    scope: Literal["terminal", "step"] = "terminal"
    """Whether it scores an episode's end, or each of its steps."""
    relative: _Relative = False
    """
    Whether its values mean something within a group only, such as ranks.
    pairwise: it is shown two members at a time, and says how far the first is better.
    """
    repeats: Annotated[_Whole, Field(ge=1, le=1000)] = 1
    """How often it is called for one sample; for judges that are noisy."""
    aggregate: Literal["mean", "median", "minimum", "maximum", "majority"] = "mean"
    """What is made of the repeats."""
    timeout: Annotated[_Number, Field(gt=0)] | None = None
    """Seconds for one call."""
    isolation: Literal["none", "process"] = "none"
    """process: in a worker, which is ended at its time limit; else a late value is marked late."""
    priority: _Whole | None = None
    """Rank under `lexicographic`, lowest first."""
    threshold: _Number | None = None
    """Least value with which a verifier passes; by default the highest of its range, else 1."""
    always: _Flag = False
    """Whether it is called although a gate has decided; else what costs is not: judges, what is isolated."""
    depends: tuple[str, ...] = ()
    """Files beside the spec whose content changes scores."""
    version: str | None = None
    """Version of what it does, where its code can't be read."""

    @model_validator(mode="before")
    @classmethod
    def _range_of_values(cls, given: Any) -> Any:
        """The range that the values of labels have, where none is stated."""
        values = given.get("values") if isinstance(given, dict) else None
        if not isinstance(values, dict) or not values or given.get("range") is not None:
            return given
        numbers = [value for value in values.values() if isinstance(value, (int, float))]
        return {**given, "range": (min(numbers), max(numbers))} if len(numbers) == len(values) else given


class SpecInclude(_DocumentPart):
    """Another spec as one component of this one."""

    spec: str
    """Path of its file, or the name of an installed one."""
    version: str | None = None
    """Which versions will do, such as `^1.2`, `>=1.2,<2` or `1.2.0`; a lint error where it is left out."""
    as_: _Name = Field(alias="as")
    """Its name here."""
    kind: Kind = "rubric"
    weight: _Number = 1.0
    priority: _Whole | None = None


class Bounds(_DocumentPart):
    """What a number is expected to be."""

    min: _Number | None = None
    max: _Number | None = None
    equals: _Number | None = None
    tolerance: Annotated[_Number, Field(ge=0)] = 1e-9
    """Of `equals`."""


_Value = Annotated[
    Annotated[_Number, Tag("number")] | Annotated[Bounds, Tag("bounds")], _is_mapping("bounds", "number")
]


class Expected(_DocumentPart):
    """What a case is expected to give; what is not stated is not looked at."""

    value: _Value | None = None
    status: Literal["ok", "partial", "error", "abstained", "missing"] | None = None
    verdict: Literal["pass", "fail"] | None = None
    failed_checks: tuple[str, ...] | None = None
    components: dict[str, _Value] = Field(default_factory=dict)


class SpecCase(_DocumentPart):
    """One sample and what the spec is expected to make of it."""

    name: _Name
    kind: CaseKind
    description: str = ""
    input: dict[str, Any]
    """The sample; of an episode whose steps are scored too, its end."""
    steps: tuple[dict[str, Any], ...] = ()
    """The samples of the episode's steps; what is expected is then of the whole episode."""
    expect: Expected | None = None
    human: _Number | None = None
    """What a person gave it."""


class Better(_DocumentPart):
    """One case is to be paid more than another."""

    better: str
    than: str
    by: Annotated[_Number, Field(ge=0)] = 0.0
    """At least so much more; strictly more where it is 0."""


class CombiningFunction(_DocumentPart):
    """A function of the user's that combines."""

    use: _Target | None = None
    """`module:function`; None for a function given in Python."""
    version: str | None = None
    """Version of what it does, where its code can't be read."""


_Combined = Annotated[
    Annotated[Combine, Tag("name")] | Annotated[CombiningFunction, Tag("function")],
    _is_mapping("function", "name"),
]
_Cases = Annotated[
    Annotated[SpecCase, Tag("case")] | Annotated[Better, Tag("better")],
    Discriminator(lambda value: "better" if _says(value, "better") else "case"),
]


def _says(value: Any, key: str) -> bool:
    return key in value if isinstance(value, dict) else hasattr(value, key)


class SpecDocument(_DocumentPart):
    """A reward spec as it is written."""

    mttp: Literal["reward-spec/1"] = FORMAT
    name: _Name
    version: _Version
    """Semantic version, where 1.2 is 1.2.0; see `mttp spec diff` for the bump that a change deserves."""
    description: str = ""
    inputs: dict[_InputName, _Input] = Field(default_factory=dict)
    """Type by name of what a sample has; see `InputType`."""
    components: tuple[ComponentEntry, ...] = ()
    include: tuple[SpecInclude, ...] = ()
    combine: _Combined = "gated"
    """How values become one; `{use: "module:function"}` for the user's own."""
    partial_credit: _Number | None = None
    """Under `gated`: the most that a sample may get whose verifier failed; without it, it gets the floor."""
    range: _Range | None = None
    """Lowest and highest reward; by default what the components can reach."""
    clip: _Flag = False
    """Whether a reward beyond `range` becomes its nearest end, counted; else it is invalid."""
    step_total: Annotated[_Range, AfterValidator(_around_zero)] | None = None
    """Lowest and highest sum of an episode's step rewards; a step that would go beyond pays what is left."""
    floor: _Number | None = None
    """What a sample gets where a check failed: the range's minimum, unless stated."""
    on_invalid: Literal["invalid", "floor", "skip"] = "invalid"
    """
    What becomes of a sample where a component raised, abstained, timed out or gave NaN.
    invalid: it has no reward. floor: it gets the floor, beside a status that says so.
    skip: the others count, their weights raised to be as much in all; gates are never skipped.
    """
    horizon: Annotated[_Whole, Field(ge=1)] | None = None
    """Steps that an episode has at most; it changes no score, and lint weighs what steps are paid by it."""
    depends: tuple[str, ...] = ()
    """Files beside the spec whose content changes scores."""
    distributions: tuple[str, ...] = ()
    """Installed distributions whose versions change scores; stating one does not allow calling its code."""
    cases: tuple[_Cases, ...] = ()
    """Samples with what they are expected to give, and orders among them."""
