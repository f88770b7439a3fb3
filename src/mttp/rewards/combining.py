"""One number out of many: gates first, then what the spec's `combine` makes of the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from mttp.episodes import Grade
from mttp.rewards.plan import Plan
from mttp.rewards.scores import failed, read
from mttp.scorings import INVALID_VALUE, OUT_OF_RANGE

__all__ = ["Combined", "combine", "threshold"]

_ROUNDING = 1e-9
"""What a sum may be beyond a range by rounding alone."""

_Shares: TypeAlias = Mapping[str, float]
_Made: TypeAlias = tuple[float, _Shares]
"""A value, and what each component added to it, where they are added up."""


class _Error(TypedDict):
    """What went wrong, in words and as a type."""

    error: str | None
    error_type: str | None


_NO_ERROR: _Error = {"error": None, "error_type": None}


class _Unusable(Exception):  # noqa: N818 - said of what was combined
    """There is no such reward; the message says why."""

    def __init__(self, message: str, error_type: str | None) -> None:
        super().__init__(message)
        self.error_type = error_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What the components of one sample come to."""

    value: float | None = None
    """The reward; None where the sample is invalid."""
    status: str = "ok"
    """ok, error or abstained."""
    verdict: str | None = None
    """pass or fail, where a verifier decided; fail where a check failed."""
    failed_checks: tuple[str, ...] = ()
    """Names of the checks that failed, sorted."""
    error: str | None = None
    """What went wrong, where anything did."""
    error_type: str | None = None
    """The type of the first error, by the component's name."""
    clipped: bool = False
    """Whether the value was beyond the range and became its nearest end."""
    contributions: _Shares = field(default_factory=dict)
    """What each component added, where they are added up."""


def threshold(kind: str, stated: float | None, bounds: tuple[float, float] | None) -> float | None:
    """The least value with which a verifier or a check passes; None for other kinds."""
    if kind not in ("verifier", "check"):
        return None
    if stated is not None:
        return stated
    return 1.0 if bounds is None else bounds[1]


def combine(plan: Plan, grades: Sequence[Grade], *, bounds: tuple[float, float] | None = None) -> Combined:
    """
    The reward of a sample whose components were graded so; `bounds` are its lowest and highest value.

    The order of the grades does not matter.
    """
    lacking = [grade for grade in grades if grade.status != "ok"]
    error = _errors(lacking) if lacking else _NO_ERROR
    broken = [grade.name for grade in grades if grade.kind == "check" and grade.verdict == "fail"]
    if broken:
        checks = tuple(sorted(broken))
        return Combined(value=plan.floor, verdict="fail", failed_checks=checks, **error)
    verdict = _verdict(grades)
    counting = [grade for grade in grades if grade.status == "ok" and grade.kind != "check"]
    if lacking and _is_invalid(plan, lacking, counting):
        is_error = any(grade.status == "error" for grade in lacking)
        return _invalid(plan, "error" if is_error else "abstained", error, verdict)
    try:
        value, shares = _made(plan, counting, bounds)
        value, clipped = _within(value, bounds, clip=plan.clip)
    except (OverflowError, ValueError):  # finite numbers whose sum is not
        error = {"error": "the reward is beyond a float", "error_type": INVALID_VALUE}
        return _invalid(plan, "error", error, verdict)
    except _Unusable as reason:
        return _invalid(plan, "error", {"error": str(reason), "error_type": reason.error_type}, verdict)
    return Combined(value=value, verdict=verdict, clipped=clipped, contributions=shares, **error)


def _errors(lacking: Sequence[Grade]) -> _Error:
    """The errors of all components as one text, and the first one's type."""
    by_name = sorted(lacking, key=lambda grade: grade.name)
    return {
        "error": "; ".join(sorted(f"{grade.name}: {grade.error or grade.status}" for grade in lacking)),
        "error_type": next((grade.error_type for grade in by_name if grade.status == "error"), None),
    }


def _verdict(grades: Sequence[Grade]) -> str | None:
    verdicts = [grade.verdict for grade in grades if grade.kind == "verifier"]
    if "fail" in verdicts:
        return "fail"
    gates = [grade.verdict for grade in grades if grade.kind in ("verifier", "check")]
    return "pass" if verdicts and all(verdict == "pass" for verdict in gates) else None


def _is_invalid(plan: Plan, lacking: Sequence[Grade], counting: Sequence[Grade]) -> bool:
    """Whether what is lacking can't be skipped: nothing else counts, or it is a gate."""
    return plan.on_invalid != "skip" or not counting or any(_gates(plan, grade) for grade in lacking)


def _gates(plan: Plan, grade: Grade) -> bool:
    """Whether the others must not count without it."""
    return grade.kind == "check" or (grade.kind == "verifier" and plan.combine == "gated")


def _invalid(plan: Plan, status: str, error: _Error, verdict: str | None) -> Combined:
    if plan.on_invalid == "floor":
        return Combined(value=plan.floor, verdict=verdict, **error)
    return Combined(status=status, verdict=verdict, **error)


def _made(plan: Plan, grades: Sequence[Grade], bounds: tuple[float, float] | None) -> _Made:
    if not grades:  # only checks, which all passed
        return (1.0 if bounds is None else bounds[1]), {}
    if isinstance(plan.combine, str):
        return _COMBINES[plan.combine](plan, grades)
    return _own(plan.combine, grades), {}


def _within(value: float, bounds: tuple[float, float] | None, *, clip: bool) -> tuple[float, bool]:
    """The value within the reward's range, and whether that took more than rounding."""
    if not math.isfinite(value):
        raise OverflowError
    if bounds is None or bounds[0] <= value <= bounds[1]:
        return value, False
    nearest = min(max(value, bounds[0]), bounds[1])
    if math.isclose(nearest, value, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return nearest, False
    if not clip:
        raise _Unusable(
            f"the reward {value!r} is beyond its range [{bounds[0]!r}, {bounds[1]!r}]", OUT_OF_RANGE
        )
    return nearest, True


def _share(grade: Grade) -> float:
    """What a component adds to a sum; a penalty takes off, whichever sign its value or weight has."""
    amount = (1.0 if grade.weight is None else grade.weight) * (grade.value or 0.0)
    return -abs(amount) if grade.kind == "penalty" else amount


def _weighted_sum(_: Plan, grades: Sequence[Grade]) -> _Made:
    shares = {grade.name: _share(grade) for grade in grades}
    return math.fsum(shares.values()), shares


def _gated(plan: Plan, grades: Sequence[Grade]) -> _Made:
    """The sum, once every verifier has passed; else the floor, or as much credit as is stated."""
    if all(grade.verdict == "pass" for grade in grades if grade.kind == "verifier"):
        return _weighted_sum(plan, grades)
    if plan.partial_credit is None:
        return plan.floor, {}
    value, shares = _weighted_sum(plan, grades)
    bounded = max(plan.floor, min(value, plan.partial_credit))
    return bounded, shares if bounded == value else {}


def _lexicographic(plan: Plan, grades: Sequence[Grade]) -> _Made:
    """The sum of the most important and of those before which, by priority, everything is reached."""
    entries = {one.name: one.entry for one in plan.components}
    shares = {grade.name: _share(grade) for grade in grades if grade.kind == "penalty"}
    levels: dict[float, list[Grade]] = {}
    for grade in grades:
        if grade.kind != "penalty":
            priority = entries[grade.name].priority
            levels.setdefault(math.inf if priority is None else priority, []).append(grade)
    for _, level in sorted(levels.items()):
        shares |= {grade.name: _share(grade) for grade in level}
        if not all(_is_reached(grade, entries[grade.name].threshold) for grade in level):
            break
    return math.fsum(shares.values()), shares


def _is_reached(grade: Grade, stated: float | None) -> bool:
    """Whether a component is as high as it need be for what comes after it to count."""
    least = threshold("verifier", stated, grade.range)
    return grade.value is not None and least is not None and grade.value >= least


def _product(_: Plan, grades: Sequence[Grade]) -> _Made:
    """Sorted first, so that rounding does not depend on the order."""
    paid = _paid(grades)
    return _less_penalties(math.prod(sorted(paid)) if paid else 0.0, grades), {}


def _minimum(_: Plan, grades: Sequence[Grade]) -> _Made:
    return _less_penalties(min(_paid(grades), default=0.0), grades), {}


def _paid(grades: Sequence[Grade]) -> list[float]:
    """The values of what is not taken off."""
    return [grade.value for grade in grades if grade.kind != "penalty" and grade.value is not None]


def _less_penalties(value: float, grades: Sequence[Grade]) -> float:
    return math.fsum([value, *(_share(grade) for grade in grades if grade.kind == "penalty")])


def _own(function: Callable[..., object], grades: Sequence[Grade]) -> float:
    """What the user's function makes of values and weights by name."""
    by_name = sorted(grades, key=lambda grade: grade.name)
    values = {grade.name: grade.value for grade in by_name}
    try:
        answer = read(function(values, {grade.name: grade.weight for grade in by_name}))
    except Exception as error:
        answer = failed(error)
    if answer.value is None:
        raise _Unusable(f"combine: {answer.error or answer.status}", answer.error_type)
    return answer.value


_COMBINES: Mapping[str, Callable[[Plan, Sequence[Grade]], _Made]] = {
    "gated": _gated,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "minimum": _minimum,
    "lexicographic": _lexicographic,
}
