"""Return values of components: `Score`, and their conversion to a `ComponentResult`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mttp.model.interrupts import is_exception, raise_interrupt
from mttp.model.reprs import exception_text
from mttp.model.scorings import INVALID_VALUE
from mttp.model.values import is_masked

if TYPE_CHECKING:
    from mttp.model.episodes import Call

_VALUES = ("value", "score")
_FACTS = ("label", "explanation", "evidence")


@dataclass(frozen=True, slots=True)
class Score:
    """
    A component's value with its reasons; a component without reasons returns a plain number or bool.

        >>> import mttp
        >>> @mttp.rewards.rubric(range=(0, 1))
        ... def layout(completion):
        ...     return mttp.rewards.Score(0.5, label="half", explanation="thoughts are missing")

    Any value is accepted here; the component that returns it has an error when `value` is NaN, an infinity,
    or not one number.
    """

    value: Any
    """A number or a bool of any library; None abstains."""
    label: str | None = field(default=None, kw_only=True)
    """The value as a word."""
    explanation: str | None = field(default=None, kw_only=True)
    """Why the component gave this value."""
    evidence: Any = field(default=None, kw_only=True)
    """Data that the value is based on, as JSON values; a number under `cost` is summed as grading cost."""


class ComponentResult(NamedTuple):
    """The result of one call of a component."""

    value: float | None = None
    """A finite number; None unless the status is ok."""
    status: str = "ok"
    """ok, error, abstained or missing."""
    error: str | None = None
    """The error message; None if the status is ok or abstained."""
    label: str | None = None
    explanation: str | None = None
    evidence: Any = None
    late: bool = False
    """Whether the call exceeded its time limit and could not be stopped."""
    error_type: str | None = None
    """The exception's class, or a word such as `invalid_value`."""
    criteria: Mapping[str, ComponentResult] | None = None
    """The result of each criterion by name, for a component with `criteria`."""
    calls: tuple[Call, ...] = ()
    """Model calls made by the component; calls for several samples are on the first result."""


def with_costs(evidence: Any, answers: Iterable[ComponentResult]) -> Any:
    """Return `evidence` with `cost` set to the total cost of all results."""
    costs = [
        answer.evidence["cost"]
        for answer in answers
        if isinstance(answer.evidence, Mapping) and "cost" in answer.evidence
    ]
    known = [cost for cost in map(_number, costs) if cost is not None]
    return (
        {**(evidence or {}), "cost": math.fsum(known)}
        if known and isinstance(evidence, Mapping)
        else evidence
    )


def without_cost(answer: ComponentResult) -> ComponentResult:
    """Return the result without its `cost`, which another result of the same call states."""
    if not isinstance(answer.evidence, Mapping) or "cost" not in answer.evidence:
        return answer
    rest = {key: fact for key, fact in answer.evidence.items() if key != "cost"}
    return answer._replace(evidence=rest or None)


def failed(reason: object, error_type: str | None = None) -> ComponentResult:
    """Return the result of a call that failed, from an exception or a message with its type."""
    if is_exception(reason):
        return ComponentResult(None, "error", exception_text(reason), error_type=type(reason).__name__)
    return ComponentResult(None, "error", str(reason), error_type=error_type)


def read(returned: object) -> ComponentResult:
    """
    Convert the return value of a component to a result.

    A number or bool of any library, a `Score`, a pair (value, explanation or dict) and a dict with a `value`
    or `score` have a value. None abstains, a masked numpy element is missing, and an exception, as
    `asyncio.gather` returns it, is the component's error.
    NaN, an infinity, text and anything else that is not one number are errors.
    """
    if (type(returned) is float and math.isfinite(returned)) or type(returned) is bool:
        return ComponentResult(float(returned))
    if returned is None:
        return ComponentResult(None, "abstained")
    if isinstance(returned, Score):
        value = returned.value
        return _answer(value, returned.label, returned.explanation, returned.evidence)
    if isinstance(returned, Mapping):
        return _of_mapping(returned)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], (str, Mapping)):
        return _of_pair(*returned)
    return _answer(returned)


def read_label(returned: object, values: Mapping[str, float]) -> ComponentResult:
    """
    Convert the return value of a component with `values` to a result.

    The label may be returned in every form that `read` accepts. None abstains, and anything but a label of
    `values` is an error.
    """
    if isinstance(returned, str):
        if returned not in values:
            known = ", ".join(values)
            return failed(
                f"returned the unknown label {shown(returned)}; known labels: {known}", INVALID_VALUE
            )
        return ComponentResult(values[returned], label=str(returned))
    if isinstance(returned, Score):
        facts = {"explanation": returned.explanation, "evidence": returned.evidence}
        return read_label(returned.value, values)._replace(**facts)
    if isinstance(returned, Mapping) and (name := next((key for key in _VALUES if key in returned), None)):
        rest = {key: fact for key, fact in returned.items() if key not in (name, *_FACTS)} or None
        reasons = {"explanation": returned.get("explanation"), "evidence": returned.get("evidence", rest)}
        return read_label(returned[name], values)._replace(**reasons)
    if isinstance(returned, tuple) and len(returned) == 2:
        value, facts = returned
        return read_label(
            {"value": value, **(facts if isinstance(facts, Mapping) else {"explanation": facts})}, values
        )
    result = read(returned)
    if result.status == "ok":
        return failed(
            f"returned {shown(returned)}, expected one of the labels {', '.join(values)}", INVALID_VALUE
        )
    return result


def read_criteria(
    returned: object, names: Iterable[str], one: Callable[[object], ComponentResult]
) -> ComponentResult:
    """
    Convert the return value of a component with `criteria`, a mapping by criterion, to a result.

    `one` converts the value of each criterion; other items of the mapping are the component's evidence.
    """
    if returned is None:
        return ComponentResult(None, "abstained")
    if not isinstance(returned, Mapping):
        return failed(f"returned {shown(returned)}, expected a dict by criterion", INVALID_VALUE)
    known = list(names)
    lacking = failed("the returned dict lacks this criterion", INVALID_VALUE)
    answers = {name: one(returned[name]) if name in returned else lacking for name in known}
    rest = {str(key): fact for key, fact in returned.items() if key not in answers}
    return ComponentResult(evidence=rest or None, criteria=answers)


def _of_pair(value: object, facts: str | Mapping[Any, Any]) -> ComponentResult:
    if isinstance(facts, str):
        return _answer(value, explanation=facts)
    known = {name: facts[name] for name in _FACTS if name in facts}
    rest = {name: fact for name, fact in facts.items() if name not in _FACTS}
    known.setdefault("evidence", rest or None)
    return _answer(value, **known)


def _of_mapping(facts: Mapping[Any, Any]) -> ComponentResult:
    for name in _VALUES:
        if name in facts:
            return _of_pair(facts[name], {key: fact for key, fact in facts.items() if key != name})
    return failed(f"returned a dict without `value`: {shown(dict(facts))}", INVALID_VALUE)


def _answer(
    value: object, label: object = None, explanation: object = None, evidence: Any = None
) -> ComponentResult:
    reasons: dict[str, Any] = {
        "label": None if label is None else str(label),
        "explanation": None if explanation is None else str(explanation),
        "evidence": evidence,
    }
    if value is None:
        return ComponentResult(None, "abstained", **reasons)
    if is_masked(value):
        return ComponentResult(None, "missing", "returned a masked value", **reasons)
    if is_exception(value):
        return failed(value)._replace(**reasons)
    number = _number(value)
    if number is None:
        return failed(f"returned {shown(value)}, which is not a number", INVALID_VALUE)._replace(**reasons)
    if not math.isfinite(number):
        return failed(f"returned {number!r}", INVALID_VALUE)._replace(**reasons)
    return ComponentResult(number, **reasons)


def _number(value: Any) -> float | None:
    """Return one number of any library as a float, or None for anything else."""
    try:
        if isinstance(value, (str, bytes, bytearray)):
            return None
        if isinstance(value, (bool, int, float)):
            return float(value)
        if hasattr(value, "item"):  # arrays and tensors, of one element
            value = value.item()
        return float(value) if hasattr(type(value), "__float__") else None
    except Exception as error:  # a foreign object may raise anything
        raise_interrupt(error)
        return None


def shown(value: object) -> str:
    """Return a shortened `repr` that never raises."""
    try:
        return f"{value!r:.120}"
    except Exception as error:
        raise_interrupt(error)
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"
