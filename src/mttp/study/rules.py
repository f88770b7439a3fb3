"""Promotion rules: the document that `mttp.gate` reads, and its validation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mttp.errors import SpecError, StudyError
from mttp.rewards import parsing

RulesSource: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | PromotionRules"
"""A YAML or JSON file, its content as a mapping, or rules that were loaded before."""

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Range = tuple[_Number, _Number]


class _RulesPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AggregateRule(_RulesPart):
    """Bounds of a metric of the candidate, or of its gain over the baseline."""

    metric: str
    min: _Number | None = None
    """The mean is at least this."""
    max: _Number | None = None
    """The mean is at most this."""
    gain: _Number | None = None
    """The candidate is better than the baseline by more than this; less is better for tokens and times."""
    margin: _Margin | None = None
    """The candidate is worse than the baseline by less than this."""
    range: _Range | None = None
    """The lowest and the highest possible value; by default the reward spec's, and 0 and 1 of passes."""


class SliceRule(_RulesPart):
    """A bound of a metric against the baseline within slices."""

    by: str
    """split, slices, env, group, inputs.NAME or metadata.NAME."""
    slice: str | None = None
    """One value of `by`; by default each value that the baseline has."""
    metric: str = "return"
    margin: _Margin = 0.0
    """For protected slices: the largest loss that is accepted."""
    gain: _Number = 0.0
    """For focus slices: the least gain that is required."""
    range: _Range | None = None
    """The lowest and the highest possible value of the metric."""


class SafetyRule(_RulesPart):
    """The largest share of episodes that fail a named check."""

    check: str
    """A component of the reward, or a check that is listed among its failed checks."""
    below: _Number = 0.5
    """A component fails with a score below this, and with a status that is not ok; give 0 for a penalty."""
    max: _Share


class ServiceRule(_RulesPart):
    """A limit of a time, of tokens or of cost."""

    metric: str
    percentile: Annotated[float, Field(gt=0, lt=100)] | None = None
    """The percentile of the episodes that `max` limits; by default the mean."""
    max: _Number | None = None
    max_ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The largest ratio of the candidate's mean to the baseline's."""
    range: _Range | None = None
    """The lowest and the highest possible value of the metric."""


class HackingRule(_RulesPart):
    """The largest share of episodes that fulfil all conditions, such as a high reward with low quality."""

    when: Annotated[tuple[str, ...], Field(min_length=1)]
    """Conditions such as `reward >= 0.8` and `components.correct < 0.5`."""
    max: _Share


class DataRules(_RulesPart):
    """How much data the other rules need: shares of both sides, numbers of the candidate."""

    missing: _Share = 0.0
    """The largest share of episodes without a value: no reward, return and outcome, or no end."""
    errors: _Share = 0.0
    """The largest share of episodes that ended by an error, or whose reward's status is error or partial."""
    min_episodes: Annotated[int, Field(ge=1)] = 1
    min_tasks: Annotated[int, Field(ge=1)] | None = None
    """Tasks, or seeds of an environment without tasks."""
    min_runs: Annotated[int, Field(ge=1)] | None = None
    """Runs: of training runs, the number of seeds."""
    samples: Literal["same", "any"] = "same"
    """Whether both sides need the same number of episodes of each task."""


class BaselinePin(_RulesPart):
    """Which recording the baseline must be."""

    run: str | None = None
    """The id or the name of its run."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")] | None = None
    """At least 8 digits of the digest that `mttp summary` prints."""
    max_age: Annotated[str, Field(pattern=r"^\d+ (hours?|days?|weeks?)$")] | None = None
    """How long ago its last episode may have started, such as `30 days`."""


class VersionPins(_RulesPart):
    """The versions by which all episodes of the candidate were scored, and their environment."""

    spec: str | None = None
    """`NAME@VERSION` of the reward spec, or at least 8 digits of its SHA-256 digest."""
    grader: str | None = None
    """`NAME@VERSION` of the grader."""
    env: str | None = None
    """The id of the environment."""


class PromotionRules(_RulesPart):
    """What a candidate must fulfil; each entry is one rule or several."""

    confidence: Annotated[float, Field(gt=0.5, le=0.999)] = 0.95
    """Of one-sided bounds."""
    window: Annotated[int, Field(ge=1)] = 100
    """Last finished episodes of each training run that count."""
    allow: tuple[Literal["env", "tasks", "inputs", "spec", "grader", "missing", "sampled"], ...] = ()
    """
    Accepted differences between candidate and baseline; missing: episodes without a value are left out;
    sampled: a recording that has only some episodes of its run.
    """
    aggregate: tuple[AggregateRule, ...] = ()
    protected: tuple[SliceRule, ...] = ()
    focus: tuple[SliceRule, ...] = ()
    safety: tuple[SafetyRule, ...] = ()
    service: tuple[ServiceRule, ...] = ()
    hacking: tuple[HackingRule, ...] = ()
    data: DataRules = DataRules()
    baseline: BaselinePin | None = None
    pins: VersionPins | None = None


def load_rules(source: RulesSource) -> PromotionRules:
    """
    Read and validate promotion rules.

    Raises StudyError, with file and line where they are known, for a document that can't be read, an unknown
    key, a value out of bounds, a rule without a bound and a document without rules.
    """
    if isinstance(source, PromotionRules):
        return source
    if isinstance(source, Mapping):
        parsed = parsing.SpecSource(data=dict(source))
    else:
        try:
            parsed = parsing.read(Path(source))
        except SpecError as error:
            raise StudyError(str(error)) from error
    if not isinstance(parsed.data, dict):
        raise _fault(parsed, "these are not promotion rules; `mttp gate --init` writes a file with examples")
    try:
        rules = PromotionRules.model_validate(parsed.data)
    except ValidationError as error:
        raise _invalid(parsed, error) from error
    _refuse_incomplete(parsed, rules)
    return rules


def rules_digest(rules: PromotionRules) -> str:
    """Return the SHA-256 digest of the rules, which comments and the order of keys do not change."""
    return hashlib.sha256(rules.model_dump_json().encode()).hexdigest()


def _refuse_incomplete(source: parsing.SpecSource, rules: PromotionRules) -> None:
    for place, aggregate in enumerate(rules.aggregate):
        if (aggregate.min, aggregate.max, aggregate.gain, aggregate.margin) == (None,) * 4:
            raise _fault(source, f"{aggregate.metric} has no min, max, gain or margin", "aggregate", place)
    for place, limit in enumerate(rules.service):
        if limit.max is None and limit.max_ratio is None:
            raise _fault(source, f"{limit.metric} has no max or max_ratio", "service", place)
        if limit.percentile is not None and limit.max is None:
            raise _fault(source, f"the percentile of {limit.metric} has no max", "service", place)
    if rules.pins is not None and rules.pins == VersionPins():
        raise _fault(source, "pins has no spec, grader or env", "pins")
    if rules.baseline is not None and rules.baseline == BaselinePin():
        raise _fault(source, "baseline has no run, sha256 or max_age", "baseline")
    for section in ("aggregate", "protected", "focus", "service"):
        for place, rule in enumerate(getattr(rules, section)):
            if rule.range is not None and not rule.range[0] < rule.range[1]:
                raise _fault(source, f"range {[*rule.range]} is empty: give lowest, highest", section, place)
    if (
        not any((rules.aggregate, rules.protected, rules.focus, rules.safety, rules.service, rules.hacking))
        and not {"data", "pins", "baseline"} & rules.model_fields_set
    ):
        raise _fault(source, "there is no rule; `mttp gate --init` writes a file of examples")


def _invalid(source: parsing.SpecSource, error: ValidationError) -> StudyError:
    """The first fault, with its place."""
    detail = error.errors(include_url=False)[0]
    place: tuple[Any, ...] = tuple(detail["loc"])
    shown = ".".join(map(str, place))
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(str(place[-1]), _known(place[:-1]), n=1)
        known = ", ".join(_known(place[:-1]))
        advice = f"did you mean {near[0]!r}?" if near else f"there are {known}"
        return _fault(source, f"{shown} is not known; {advice}", *place, key=True)
    value = "" if detail["type"] == "missing" else f", and it is {detail['input']!r}"
    return _fault(source, f"{shown}: {detail['msg']}{value}", *place)


def _known(place: Iterable[Any]) -> list[str]:
    """The keys that are known at a place."""
    models: dict[str, type[BaseModel]] = {
        "aggregate": AggregateRule,
        "protected": SliceRule,
        "focus": SliceRule,
        "safety": SafetyRule,
        "service": ServiceRule,
        "hacking": HackingRule,
        "data": DataRules,
        "baseline": BaselinePin,
        "pins": VersionPins,
    }
    sections = [part for part in place if part in models]
    return list((models[sections[0]] if sections else PromotionRules).model_fields)


def _fault(source: parsing.SpecSource, reason: str, *at: str | int, key: bool = False) -> StudyError:
    return StudyError(str(source.error(reason, *at, key=key)))
