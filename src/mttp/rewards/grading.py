"""Grades of components: repeated calls aggregated to one value within the component's range."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import fsum, inf
from typing import Any

from mttp.model.episodes import Call, Grade
from mttp.model.results import RewardResult
from mttp.model.scorings import OUT_OF_RANGE
from mttp.rewards.combining import threshold
from mttp.rewards.component_results import ComponentResult, with_costs
from mttp.rewards.document import ComponentEntry


def grade(entry: ComponentEntry, answers: Sequence[ComponentResult], start: int, end: int) -> Grade:
    """
    Return the grade of a component from its results, one for each repeat.

    `start` and `end` of its calls are in nanoseconds since the Unix epoch.
    """
    if entry.criteria:
        return _of_criteria(entry, answers, start, end)
    answer = answers[0] if len(answers) == 1 else _aggregated(entry, answers)
    clipped = False
    bounds, values = entry.range, _values(answers)
    if bounds is not None and answer.value is not None and not bounds[0] <= answer.value <= bounds[1]:
        answer, clipped = _beyond(answer, answer.value, bounds, clip=entry.clip)
    return _graded(
        entry,
        answer,
        clipped=clipped,
        late=any(result.late for result in answers),
        repeats=() if len(answers) == 1 else values,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        calls=_calls(answers),
        start_time=start,
        end_time=end,
    )


def _graded(entry: ComponentEntry, answer: ComponentResult, **facts: Any) -> Grade:
    return Grade(
        name=entry.name,
        kind=entry.kind,
        value=answer.value,
        weight=None if entry.kind == "check" else entry.weight,
        status=answer.status,
        error=answer.error,
        error_type=answer.error_type,
        verdict=_verdict(entry, answer.value),
        range=entry.range,
        label=answer.label,
        explanation=answer.explanation,
        evidence=answer.evidence,
        relative=True if entry.relative else None,
        **facts,
    )


def _of_criteria(entry: ComponentEntry, answers: Sequence[ComponentResult], start: int, end: int) -> Grade:
    """
    Return the grade of a component with criteria, with a grade below it for each criterion.

    The value is the weighted mean of the criteria, or None if one has no value.
    """
    parts = []
    for name, weight in entry.criteria.items():
        of_one = entry.model_copy(update={"name": name, "weight": weight, "criteria": {}})
        picks = [answer.criteria[name] if answer.criteria else answer for answer in answers]
        parts.append(
            grade(
                of_one,
                [
                    part._replace(late=whole.late, calls=())
                    for part, whole in zip(picks, answers, strict=True)
                ],
                start,
                end,
            )
        )
    total = fsum(entry.criteria.values())
    shares = {part.name: entry.criteria[part.name] * (part.value or 0.0) / total for part in parts}
    lacking = [part for part in parts if part.status != "ok"]
    if lacking:
        first = next((part for part in lacking if part.status == "error"), lacking[0])
        message = None if first.error is None else f"{first.name}: {first.error}"
        answer = ComponentResult(None, first.status, message, error_type=first.error_type)
    else:
        answer = ComponentResult(fsum(shares.values()))
        parts = [replace(part, contribution=shares[part.name]) for part in parts]
    evidence = next((answer.evidence for answer in answers if answer.evidence is not None), None)
    return _graded(
        entry,
        answer._replace(evidence=with_costs(evidence, answers)),
        clipped=any(part.clipped for part in parts),
        late=any(part.late for part in parts),
        parts=tuple(parts),
        calls=_calls(answers),
        start_time=start,
        end_time=end,
    )


def included(entry: ComponentEntry, result: RewardResult) -> Grade:
    """Return the grade of an included spec from its result."""
    return Grade(
        name=entry.name,
        kind=entry.kind,
        value=result.value,
        weight=None if entry.kind == "check" else entry.weight,
        status=result.status,
        error=result.error,
        error_type=result.error_type,
        verdict=_verdict(entry, result.value if result.status == "ok" else None),
        range=result.range,
        clipped=result.clipped,
        late=any(part.late for part in result.components.values()),
        parts=tuple(result.components.values()),
        relative=True if entry.relative else None,
        start_time=result.start_time,
        end_time=result.end_time,
    )


def uncalled(entry: ComponentEntry, reason: str | None = None) -> Grade:
    """Return the grade of a component that was not called, with the reason."""
    return Grade(
        name=entry.name,
        kind=entry.kind,
        weight=None if entry.kind == "check" else entry.weight,
        status="missing",
        explanation=reason and f"not called: {reason}",
        relative=True if entry.relative else None,
    )


def regraded(entry: ComponentEntry, grade: Grade, value: float) -> Grade:
    """Return the grade with another value and the verdict of that value."""
    return replace(
        grade, value=value, status="ok", error=None, error_type=None, verdict=_verdict(entry, value)
    )


def _verdict(entry: ComponentEntry, value: float | None) -> str | None:
    least = threshold(entry.kind, entry.threshold, entry.range)
    if least is None or value is None:
        return None
    return "pass" if value >= least else "fail"


def _beyond(
    answer: ComponentResult, value: float, bounds: tuple[float, float], *, clip: bool
) -> tuple[ComponentResult, bool]:
    if clip:
        return answer._replace(value=min(max(value, bounds[0]), bounds[1])), True
    message = f"{value!r} is outside of the component's range [{bounds[0]!r}, {bounds[1]!r}]"
    return answer._replace(value=None, status="error", error=message, error_type=OUT_OF_RANGE), False


def _aggregated(entry: ComponentEntry, answers: Sequence[ComponentResult]) -> ComponentResult:
    """Aggregate repeated results; an error fails the component, and abstentions are left out."""
    failures = [answer for answer in answers if answer.status == "error"]
    if failures:
        count = f"{len(failures)} of {len(answers)} calls failed"
        return failures[0]._replace(error=f"{count}: {failures[0].error}")
    values = _values(answers)
    if not values:
        return answers[0]
    value = _AGGREGATES[entry.aggregate](values)
    nearest = min(answers, key=lambda result: inf if result.value is None else abs(result.value - value))
    return nearest._replace(value=value, evidence=with_costs(nearest.evidence, answers))


def _calls(answers: Sequence[ComponentResult]) -> tuple[Call, ...]:
    """Return the model calls of all results."""
    return tuple([call for result in answers for call in result.calls])


def _values(answers: Sequence[ComponentResult]) -> tuple[float, ...]:
    return tuple(answer.value for answer in answers if answer.value is not None)


def _majority(values: Sequence[float]) -> float:
    """Return the most frequent value, the lowest of several."""
    return min(Counter(values).items(), key=lambda item: (-item[1], item[0]))[0]


_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "minimum": min,
    "maximum": max,
    "majority": _majority,
}
