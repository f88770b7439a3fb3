"""Combination of component grades to one reward: gates first, then the spec's `combine`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from mttp.model.episodes import Grade
from mttp.model.interrupts import raise_interrupt
from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE
from mttp.rewards.component_results import failed, read
from mttp.rewards.plan import ScoringPlan

_ROUNDING = 1e-9
"""The tolerance for rounding errors at the ends of a range."""

_NOT_WEIGHED = ("check", "penalty")
"""Kinds whose weights are not part of the total weight."""

_Contributions: TypeAlias = Mapping[str, float]
_Reward: TypeAlias = tuple[float, _Contributions]
"""A value, and the contribution of each component if values are summed."""


class _Error(TypedDict):
    """The error message and type of a combination."""

    error: str | None
    error_type: str | None


_NO_ERROR: _Error = {"error": None, "error_type": None}


class _CombineError(Exception):
    """The components can't be combined to a reward."""

    def __init__(self, message: str, error_type: str | None) -> None:
        super().__init__(message)
        self.error_type = error_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The combined reward of one sample."""

    value: float | None = None
    """The reward; for an invalid sample the floor under `on_invalid: floor`, else None."""
    status: str = "ok"
    """ok, error, abstained or missing."""
    verdict: str | None = None
    """pass or fail, if a verifier decided; fail if a check failed."""
    failed_checks: tuple[str, ...] = ()
    """The failed checks, sorted; those of included specs are dotted paths."""
    error: str | None = None
    """The errors of all components; None without errors."""
    error_type: str | None = None
    """The type of the first error, by component name."""
    clipped: bool = False
    """Whether the value was outside of the range and was clipped."""
    contributions: _Contributions = field(default_factory=dict)
    """The contribution of each component, if values are summed."""


def threshold(kind: str, stated: float | None, bounds: tuple[float, float] | None) -> float | None:
    """Return the lowest passing value of a verifier or a check; None for other kinds."""
    if kind not in ("verifier", "check"):
        return None
    if stated is not None:
        return stated
    return 1.0 if bounds is None else bounds[1]


def combine(
    plan: ScoringPlan, grades: Sequence[Grade], *, bounds: tuple[float, float] | None = None
) -> Combined:
    """
    Combine the grades of a sample to its reward; `bounds` is the reward's range.

    A failed check decides first, then under `gated` a failed verifier, then a component without a value.
    The order of the grades does not matter.
    """
    lacking = [grade for grade in grades if grade.status != "ok"]
    error = _errors(lacking) if lacking else _NO_ERROR
    broken = tuple(sorted(path for path, grade in checks(grades) if grade.verdict == "fail"))
    if broken:
        return Combined(value=plan.floor, verdict="fail", failed_checks=broken, **error)
    verdict = _verdict(grades)
    if needs_verifiers(plan) and verdict == "fail" and not any(map(_holds_check, lacking)):
        return Combined(value=plan.floor, verdict=verdict, **error)
    counting = [grade for grade in grades if grade.status == "ok" and grade.kind != "check"]
    if lacking and _is_invalid(plan, lacking, counting):
        return _invalid(plan, _worst(lacking), error, verdict)
    try:
        value, contributions = _reward(plan, counting, lacking, bounds)
        value, clipped = _within(value, bounds, clip=plan.clip)
    except (OverflowError, ValueError):  # the sum of finite numbers overflows
        error = {"error": "the reward is too large for a float", "error_type": INVALID_VALUE}
        return _invalid(plan, "error", error, verdict)
    except _CombineError as reason:
        return _invalid(plan, "error", {"error": str(reason), "error_type": reason.error_type}, verdict)
    return Combined(value=value, verdict=verdict, clipped=clipped, contributions=contributions, **error)


def checks(grades: Iterable[Grade]) -> Iterator[tuple[str, Grade]]:
    """Yield the checks among grades by name; those of included specs by path, such as `safety.no_leak`."""
    for grade in grades:
        if grade.kind == "check":
            yield grade.name, grade
        for path, part in checks(grade.parts):
            yield f"{grade.name}.{path}", part


def needs_verifiers(plan: ScoringPlan) -> bool:
    """Return whether a failed verifier sets the reward to the floor."""
    return plan.combine == "gated" and plan.partial_credit is None


def _errors(lacking: Sequence[Grade]) -> _Error:
    """Return the errors of all components as one message, and the first one's type."""
    by_name = sorted(lacking, key=lambda grade: grade.name)
    messages = [f"{grade.name}: {grade.error or grade.status}" for grade in by_name if not not_called(grade)]
    return {
        "error": "; ".join(messages) or None,
        "error_type": next((grade.error_type for grade in by_name if grade.status == "error"), None),
    }


def _worst(lacking: Sequence[Grade]) -> str:
    """Return the status of a sample from its components without values."""
    statuses = {grade.status for grade in lacking}
    return next(status for status in ("error", "abstained", "missing") if status in statuses)


def _verdict(grades: Sequence[Grade]) -> str | None:
    verdicts = [grade.verdict for grade in grades if grade.kind == "verifier"]
    if "fail" in verdicts:
        return "fail"
    gates = [grade.verdict for grade in grades if grade.kind in ("verifier", "check")]
    return "pass" if verdicts and all(verdict == "pass" for verdict in gates) else None


def _is_invalid(plan: ScoringPlan, lacking: Sequence[Grade], counting: Sequence[Grade]) -> bool:
    """Return whether the components without values can't be skipped."""
    return plan.on_invalid != "skip" or not counting or any(_is_needed(plan, grade) for grade in lacking)


def _is_needed(plan: ScoringPlan, grade: Grade) -> bool:
    """
    Return whether a component without a value can't be skipped.

    Checks and components that were not called never can. A verifier can only under `weighted_sum`. A penalty
    with an error can't, since it would then cost nothing. Under `lexicographic` no component can, since later
    levels depend on it.
    """
    if grade.kind == "penalty":
        return grade.status == "error"
    if grade.kind == "verifier" and plan.combine != "weighted_sum":
        return True
    return plan.combine == "lexicographic" or _holds_check(grade) or not_called(grade)


def not_called(grade: Grade) -> bool:
    """Return whether the component was not called because a gate had decided."""
    return grade.status == "missing" and grade.error is None


def _holds_check(grade: Grade) -> bool:
    """Return whether it is a check without a value, or an included spec with one."""
    return grade.status != "ok" and (grade.kind == "check" or any(map(_holds_check, grade.parts)))


def _invalid(plan: ScoringPlan, status: str, error: _Error, verdict: str | None) -> Combined:
    """Return no reward or the floor, with a status that is not ok."""
    return Combined(
        value=plan.floor if plan.on_invalid == "floor" else None, status=status, verdict=verdict, **error
    )


def _reward(
    plan: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade], bounds: tuple[float, float] | None
) -> _Reward:
    if not grades:  # only checks, which all passed
        return (1.0 if bounds is None else bounds[1]), {}
    if isinstance(plan.combine, str):
        return _COMBINES[plan.combine](plan, grades, lacking)
    return _by_function(plan.combine, grades), {}


def _within(value: float, bounds: tuple[float, float] | None, *, clip: bool) -> tuple[float, bool]:
    """Return the value within the reward's range, and whether it was clipped by more than rounding."""
    if not math.isfinite(value):
        raise OverflowError
    if bounds is None or bounds[0] <= value <= bounds[1]:
        return value, False
    nearest = min(max(value, bounds[0]), bounds[1])
    if math.isclose(nearest, value, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return nearest, False
    if not clip:
        raise _CombineError(
            f"the reward {value!r} is outside of the spec's range [{bounds[0]!r}, {bounds[1]!r}]",
            OUT_OF_RANGE,
        )
    return nearest, True


def _contribution(grade: Grade) -> float:
    """Return what a component adds to a sum; a penalty subtracts, whatever the sign of value and weight."""
    amount = (1.0 if grade.weight is None else grade.weight) * (grade.value or 0.0)
    return -abs(amount) if grade.kind == "penalty" else amount


def _weighted_sum(_: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade]) -> _Reward:
    contributions = _contributions(grades, lacking)
    return math.fsum(contributions.values()), contributions


def _contributions(grades: Iterable[Grade], lacking: Iterable[Grade]) -> dict[str, float]:
    """
    Return what each component adds to a sum.

    If some lack a value, the weights of the others are scaled up to keep the total weight.
    """
    contributions = {grade.name: _contribution(grade) for grade in grades}
    skipped = math.fsum(_weights(lacking))
    if not skipped:
        return contributions
    counted = math.fsum(_weights(grades))
    if not counted:
        raise _CombineError("the components that are left have no weight", None)
    scale = (counted + skipped) / counted
    scaled = [grade.name for grade in grades if grade.kind != "penalty"]
    return contributions | {name: contributions[name] * scale for name in scaled}


def _weights(grades: Iterable[Grade]) -> Iterator[float]:
    """Yield the weights that are part of the total weight."""
    for grade in grades:
        if grade.kind not in _NOT_WEIGHED:
            yield abs(1.0 if grade.weight is None else grade.weight)


def _gated(plan: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade]) -> _Reward:
    """Return the sum if every verifier passed; else the floor, or the sum up to the partial credit."""
    if all(grade.verdict == "pass" for grade in grades if grade.kind == "verifier"):
        return _weighted_sum(plan, grades, lacking)
    if plan.partial_credit is None:
        return plan.floor, {}
    value, contributions = _weighted_sum(plan, grades, lacking)
    bounded = max(plan.floor, min(value, plan.partial_credit))
    return bounded, contributions if bounded == value else {}


def _lexicographic(plan: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Reward:
    """Return the sum by priority, up to and including the first level below its threshold."""
    entries = {component.name: component.entry for component in plan.components}
    contributions = {grade.name: _contribution(grade) for grade in grades if grade.kind == "penalty"}
    levels: dict[float, list[Grade]] = {}
    for grade in grades:
        if grade.kind != "penalty":
            priority = entries[grade.name].priority
            levels.setdefault(math.inf if priority is None else priority, []).append(grade)
    for _, level in sorted(levels.items()):
        contributions |= {grade.name: _contribution(grade) for grade in level}
        if not all(_is_reached(grade, entries[grade.name].threshold) for grade in level):
            break
    return math.fsum(contributions.values()), contributions


def _is_reached(grade: Grade, stated_threshold: float | None) -> bool:
    """Return whether a component has reached its threshold, so that the next level counts."""
    least = threshold("verifier", stated_threshold, grade.range)
    return grade.value is not None and least is not None and grade.value >= least


def _product(_: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Reward:
    """Return the product of sorted values, so that rounding does not depend on the order."""
    values = _values(grades)
    return _less_penalties(math.prod(sorted(values)) if values else 0.0, grades), {}


def _minimum(_: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Reward:
    return _less_penalties(min(_values(grades), default=0.0), grades), {}


def _values(grades: Sequence[Grade]) -> list[float]:
    """Return the values of all components but penalties."""
    return [grade.value for grade in grades if grade.kind != "penalty" and grade.value is not None]


def _less_penalties(value: float, grades: Sequence[Grade]) -> float:
    return math.fsum([value, *(_contribution(grade) for grade in grades if grade.kind == "penalty")])


def _by_function(function: Callable[..., object], grades: Sequence[Grade]) -> float:
    """Call the user's function with values and weights by name."""
    by_name = sorted(grades, key=lambda grade: grade.name)
    values = {grade.name: grade.value for grade in by_name}
    try:
        answer = read(function(values, {grade.name: grade.weight for grade in by_name}))
    except Exception as error:
        raise_interrupt(error, installed=True)
        answer = failed(error)
    if answer.value is None:
        raise _CombineError(f"combine: {answer.error or answer.status}", answer.error_type)
    return answer.value


_COMBINES: Mapping[str, Callable[[ScoringPlan, Sequence[Grade], Sequence[Grade]], _Reward]] = {
    "gated": _gated,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "minimum": _minimum,
    "lexicographic": _lexicographic,
}
