"""One number out of many: gates first, then what the spec's `combine` makes of the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from mttp.model.episodes import Grade
from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE
from mttp.rewards.component_results import failed, read
from mttp.rewards.plan import ScoringPlan

__all__ = ["Combined", "checks", "combine", "needs_verifiers", "threshold"]

_ROUNDING = 1e-9
"""What a sum may be beyond a range by rounding alone."""

_NO_LEVEL = ("check", "penalty")
"""Kinds that are in no sum or product: what gates, and what is taken off."""

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
    """The reward; of an invalid sample the floor where that is paid, else None."""
    status: str = "ok"
    """ok, error, abstained or missing."""
    verdict: str | None = None
    """pass or fail, where a verifier decided; fail where a check failed."""
    failed_checks: tuple[str, ...] = ()
    """The checks that failed, sorted; those of an included spec by their paths."""
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


def combine(
    plan: ScoringPlan, grades: Sequence[Grade], *, bounds: tuple[float, float] | None = None
) -> Combined:
    """
    The reward of a sample whose components were graded so; `bounds` are its lowest and highest value.

    A failed check decides first, then under `gated` a failed verifier; what else has no value comes after.
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
        value, shares = _made(plan, counting, lacking, bounds)
        value, clipped = _within(value, bounds, clip=plan.clip)
    except (OverflowError, ValueError):  # finite numbers whose sum is not
        error = {"error": "the reward is beyond a float", "error_type": INVALID_VALUE}
        return _invalid(plan, "error", error, verdict)
    except _Unusable as reason:
        return _invalid(plan, "error", {"error": str(reason), "error_type": reason.error_type}, verdict)
    return Combined(value=value, verdict=verdict, clipped=clipped, contributions=shares, **error)


def checks(grades: Iterable[Grade]) -> Iterator[tuple[str, Grade]]:
    """The checks among grades, those of included specs by their paths, such as `safety.no_leak`."""
    for grade in grades:
        if grade.kind == "check":
            yield grade.name, grade
        for path, part in checks(grade.parts):
            yield f"{grade.name}.{path}", part


def needs_verifiers(plan: ScoringPlan) -> bool:
    """Whether a verifier that did not pass leaves nothing but the floor."""
    return plan.combine == "gated" and plan.partial_credit is None


def _errors(lacking: Sequence[Grade]) -> _Error:
    """The errors of all components as one text, and the first one's type."""
    by_name = sorted(lacking, key=lambda grade: grade.name)
    said = [f"{grade.name}: {grade.error or grade.status}" for grade in by_name if not not_called(grade)]
    return {
        "error": "; ".join(said) or None,
        "error_type": next((grade.error_type for grade in by_name if grade.status == "error"), None),
    }


def _worst(lacking: Sequence[Grade]) -> str:
    """The status of a sample whose components lack values."""
    found = {grade.status for grade in lacking}
    return next(status for status in ("error", "abstained", "missing") if status in found)


def _verdict(grades: Sequence[Grade]) -> str | None:
    verdicts = [grade.verdict for grade in grades if grade.kind == "verifier"]
    if "fail" in verdicts:
        return "fail"
    gates = [grade.verdict for grade in grades if grade.kind in ("verifier", "check")]
    return "pass" if verdicts and all(verdict == "pass" for verdict in gates) else None


def _is_invalid(plan: ScoringPlan, lacking: Sequence[Grade], counting: Sequence[Grade]) -> bool:
    """Whether what is lacking can't be left out: nothing else counts, or the reward hangs on it."""
    return plan.on_invalid != "skip" or not counting or any(_is_needed(plan, grade) for grade in lacking)


def _is_needed(plan: ScoringPlan, grade: Grade) -> bool:
    """
    Whether the others must not count without it.

    A check always, and what was not called; a verifier unless values are only added up; a penalty that
    failed, which would be free; under `lexicographic` everything, since what comes after hangs on it.
    """
    if grade.kind == "penalty":
        return grade.status == "error"
    if grade.kind == "verifier" and plan.combine != "weighted_sum":
        return True
    return plan.combine == "lexicographic" or _holds_check(grade) or not_called(grade)


def not_called(grade: Grade) -> bool:
    """Whether a gate had decided before the component was called."""
    return grade.status == "missing" and grade.error is None


def _holds_check(grade: Grade) -> bool:
    """Whether it is a check without a value, or an included spec that holds one."""
    return grade.status != "ok" and (grade.kind == "check" or any(map(_holds_check, grade.parts)))


def _invalid(plan: ScoringPlan, status: str, error: _Error, verdict: str | None) -> Combined:
    """No reward, or the floor: beside the status, by which it is known for no score."""
    return Combined(
        value=plan.floor if plan.on_invalid == "floor" else None, status=status, verdict=verdict, **error
    )


def _made(
    plan: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade], bounds: tuple[float, float] | None
) -> _Made:
    if not grades:  # only checks, which all passed
        return (1.0 if bounds is None else bounds[1]), {}
    if isinstance(plan.combine, str):
        return _COMBINES[plan.combine](plan, grades, lacking)
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


def _weighted_sum(_: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade]) -> _Made:
    shares = _shares(grades, lacking)
    return math.fsum(shares.values()), shares


def _shares(grades: Iterable[Grade], lacking: Iterable[Grade]) -> dict[str, float]:
    """
    What each component adds to a sum.

    Where some lack a value, the weights of the others are raised so that they are as much in all.
    """
    shares = {grade.name: _share(grade) for grade in grades}
    left_out = math.fsum(_weights(lacking))
    if not left_out:
        return shares
    counted = math.fsum(_weights(grades))
    if not counted:
        raise _Unusable("what is left has no weight", None)
    scale = (counted + left_out) / counted
    paid = [grade.name for grade in grades if grade.kind != "penalty"]
    return shares | {name: shares[name] * scale for name in paid}


def _weights(grades: Iterable[Grade]) -> Iterator[float]:
    """How much is in a sum, but for what is taken off."""
    for grade in grades:
        if grade.kind not in _NO_LEVEL:
            yield abs(1.0 if grade.weight is None else grade.weight)


def _gated(plan: ScoringPlan, grades: Sequence[Grade], lacking: Sequence[Grade]) -> _Made:
    """The sum, once every verifier has passed; else the floor, or as much credit as is stated."""
    if all(grade.verdict == "pass" for grade in grades if grade.kind == "verifier"):
        return _weighted_sum(plan, grades, lacking)
    if plan.partial_credit is None:
        return plan.floor, {}
    value, shares = _weighted_sum(plan, grades, lacking)
    bounded = max(plan.floor, min(value, plan.partial_credit))
    return bounded, shares if bounded == value else {}


def _lexicographic(plan: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Made:
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


def _product(_: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Made:
    """Sorted first, so that rounding does not depend on the order."""
    paid = _paid(grades)
    return _less_penalties(math.prod(sorted(paid)) if paid else 0.0, grades), {}


def _minimum(_: ScoringPlan, grades: Sequence[Grade], _lacking: Sequence[Grade]) -> _Made:
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


_COMBINES: Mapping[str, Callable[[ScoringPlan, Sequence[Grade], Sequence[Grade]], _Made]] = {
    "gated": _gated,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "minimum": _minimum,
    "lexicographic": _lexicographic,
}
