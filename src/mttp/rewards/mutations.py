"""Faults put into a spec on purpose: those that no case notices show what the cases don't hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from mttp.model.episodes import Grade
from mttp.model.results import RewardResult
from mttp.rewards.case_runs import Trial, misses, rivalry, try_cases
from mttp.rewards.combining import combine
from mttp.rewards.document import Better, ComponentEntry, SpecCase
from mttp.rewards.grading import regraded
from mttp.rewards.plan import ScoringPlan

__all__ = ["Mutant", "Mutation", "mutate"]

_Grades: TypeAlias = Mapping[str, Grade]
_Change: TypeAlias = Callable[[_Grades], _Grades]
_SUMS = ("gated", "weighted_sum", "lexicographic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault, and whether the cases notice it."""

    kind: str
    """drop, invert, constant-maximum, widened-range, gate-removed or weights-swapped."""
    components: tuple[str, ...]
    """Whom it concerns."""
    fault: str
    """What is wrong with the spec now, in words."""
    caught_by: tuple[str, ...]
    """The cases that notice; empty for a survivor."""
    changed: tuple[str, ...]
    """The cases whose reward it changes, noticed or not."""

    @property
    def survived(self) -> bool:
        """Whether no case notices."""
        return not self.caught_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """All faults that were tried."""

    trial: Trial
    """The cases without any fault; where one of them fails, nothing was tried."""
    mutants: tuple[Mutant, ...]
    """The faults, component by component."""

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        """Those that no case notices."""
        return tuple(one for one in self.mutants if one.survived)


def mutate(plan: ScoringPlan, cases: Sequence[SpecCase | Better]) -> Mutation:
    """
    Score the cases once, and see which of them notice each fault of the plan.

    A fault changes what components gave and what becomes of it; no component is called again for it.
    Cases with steps are left out.
    """
    cases = _ends(cases)
    trial = try_cases(_exhaustive(plan), cases)
    if trial.failed:
        return Mutation(trial=trial, mutants=())
    return Mutation(
        trial=trial,
        mutants=tuple(
            _tried(plan, trial, cases, kind, names, fault, change)
            for kind, names, fault, change in _faults(
                plan, {one.name for one in trial.coverage if one.values}
            )
        ),
    )


def _ends(cases: Sequence[SpecCase | Better]) -> list[SpecCase | Better]:
    """The cases without steps, and the orders among them."""
    stepped = {case.name for case in cases if isinstance(case, SpecCase) and case.steps}
    return [
        case
        for case in cases
        if not stepped & ({case.name} if isinstance(case, SpecCase) else {case.better, case.than})
    ]


def _exhaustive(plan: ScoringPlan) -> ScoringPlan:
    """The plan with every component called, whatever a gate says: a fault may take the gate away."""
    parts = [
        replace(
            one,
            entry=one.entry.model_copy(update={"always": True}),
            plan=None if one.plan is None else _exhaustive(one.plan),
        )
        for one in plan.components
    ]
    return replace(plan, components=tuple(parts), prepared={})


def _tried(
    plan: ScoringPlan,
    trial: Trial,
    cases: Sequence[SpecCase | Better],
    kind: str,
    names: tuple[str, ...],
    fault: str,
    change: _Change,
) -> Mutant:
    before = {one.case.name: one.results[0] for one in trial.outcomes}
    after = {name: _combined(plan, result, change) for name, result in before.items()}
    values = {name: (result.value,) for name, result in after.items()}
    caught = [one.case.name for one in trial.outcomes if misses(one.case, after[one.case.name])]
    caught += [
        f"{one.better} over {one.than}"
        for one in cases
        if isinstance(one, Better) and rivalry(one, values).miss
    ]
    changed = tuple(name for name in before if before[name].value != after[name].value)
    return Mutant(kind=kind, components=names, fault=fault, caught_by=tuple(caught), changed=changed)


def _combined(plan: ScoringPlan, result: RewardResult, change: _Change) -> RewardResult:
    """The result as a faulty spec would give it; its range is the spec's only where that clips."""
    grades = change(result.components)
    found = combine(plan, list(grades.values()), bounds=plan.range if plan.clip else None)
    return replace(
        result,
        value=found.value,
        status=found.status,
        verdict=found.verdict,
        failed_checks=found.failed_checks,
        error=found.error,
        components=grades,
    )


def _faults(plan: ScoringPlan, graded: set[str]) -> Iterator[tuple[str, tuple[str, ...], str, _Change]]:
    entries = [one.entry for one in plan.components if one.name in graded]
    for entry in entries:
        name = (entry.name,)
        if entry.kind != "check":
            yield "drop", name, f"{entry.name} is gone", _drop(entry.name)
        yield "invert", name, f"{entry.name} is upside down", _revalue(entry, _inverted)
        if entry.kind == "check":
            yield "gate-removed", name, f"{entry.name} gates nothing", _drop(entry.name)
            continue
        yield "constant-maximum", name, f"{entry.name} always gives its best", _revalue(entry, _best)
        if entry.range is not None and entry.range[0] < entry.range[1]:
            yield "widened-range", name, f"{entry.name} gives twice as much", _revalue(entry, _widened)
        if entry.kind == "verifier" and plan.combine == "gated":
            yield "gate-removed", name, f"{entry.name} gates nothing", _pass(entry.name)
    if plan.combine in _SUMS or not isinstance(plan.combine, str):
        weighted = [entry for entry in entries if entry.kind != "check"]
        for one, other in combinations(weighted, 2):
            if one.weight != other.weight:
                fault = f"{one.name} and {other.name} have each other's weight"
                yield "weights-swapped", (one.name, other.name), fault, _swap(one, other)


def _drop(name: str) -> _Change:
    return lambda grades: {key: grade for key, grade in grades.items() if key != name}


def _pass(name: str) -> _Change:
    return lambda grades: {
        key: replace(grade, verdict="pass") if key == name else grade for key, grade in grades.items()
    }


def _swap(one: ComponentEntry, other: ComponentEntry) -> _Change:
    weights = {one.name: other.weight, other.name: one.weight}
    return lambda grades: {
        key: replace(grade, weight=weights.get(key, grade.weight)) for key, grade in grades.items()
    }


def _revalue(entry: ComponentEntry, value: Callable[[ComponentEntry, float], float]) -> _Change:
    """Another value in place of each that there is."""

    def change(grades: _Grades) -> _Grades:
        grade = grades.get(entry.name)
        if grade is None or grade.value is None:
            return grades
        return {**grades, entry.name: regraded(entry, grade, value(entry, grade.value))}

    return change


def _inverted(entry: ComponentEntry, value: float) -> float:
    low, high = entry.range or (0.0, 1.0)
    return low + high - value


def _best(entry: ComponentEntry, _: float) -> float:
    """The highest that pays: of a penalty the lowest."""
    low, high = entry.range or (0.0, 1.0)
    return low if entry.kind == "penalty" else high


def _widened(entry: ComponentEntry, value: float) -> float:
    low, _ = entry.range or (0.0, 1.0)
    return low + 2 * (value - low)
