"""Mutation testing of specs: faults that no case detects show gaps in the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from mttp.model.episodes import Grade
from mttp.model.results import RewardResult
from mttp.rewards.case_runs import CaseReport, case_order, misses, run_cases
from mttp.rewards.combining import combine
from mttp.rewards.document import Better, ComponentEntry, SpecCase
from mttp.rewards.grading import regraded
from mttp.rewards.plan import ScoringPlan

_Grades: TypeAlias = Mapping[str, Grade]
_Change: TypeAlias = Callable[[_Grades], _Grades]
_SUMS = ("gated", "weighted_sum", "lexicographic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A spec with one fault, and the cases that detect it."""

    kind: str
    """drop, invert, constant-maximum, widened-range, gate-removed or weights-swapped."""
    components: tuple[str, ...]
    """The names of the changed components."""
    fault: str
    """The fault as a message."""
    caught_by: tuple[str, ...]
    """The cases that detect the fault; empty for a survivor."""
    changed: tuple[str, ...]
    """The cases whose reward the fault changes, detected or not."""

    @property
    def survived(self) -> bool:
        """Whether no case detects the fault."""
        return not self.caught_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The result of mutation testing."""

    report: CaseReport
    """The cases run without a fault; if one fails, no mutant is made."""
    mutants: tuple[Mutant, ...]
    """The mutants, component by component."""

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        """The mutants that no case detects."""
        return tuple(mutant for mutant in self.mutants if mutant.survived)


def mutate(plan: ScoringPlan, cases: Sequence[SpecCase | Better]) -> Mutation:
    """
    Run the cases once, then combine their grades again under each fault to find the cases that detect it.

    Components are not called again for a fault. Cases with steps are left out.
    """
    cases = _without_steps(cases)
    report = run_cases(_exhaustive(plan), cases)
    if report.failed:
        return Mutation(report=report, mutants=())
    return Mutation(
        report=report,
        mutants=tuple(
            _mutant(plan, report, cases, kind, names, fault, change)
            for kind, names, fault, change in _faults(
                plan, {component.name for component in report.coverage if component.values}
            )
        ),
    )


def _without_steps(cases: Sequence[SpecCase | Better]) -> list[SpecCase | Better]:
    """Return the cases without steps, and the expected orders among them."""
    stepped = {case.name for case in cases if isinstance(case, SpecCase) and case.steps}
    return [
        case
        for case in cases
        if not stepped & ({case.name} if isinstance(case, SpecCase) else {case.better, case.than})
    ]


def _exhaustive(plan: ScoringPlan) -> ScoringPlan:
    """Return the plan with every component called despite gates, since a fault may remove a gate."""
    parts = [
        replace(
            component,
            entry=component.entry.model_copy(update={"always": True}),
            plan=None if component.plan is None else _exhaustive(component.plan),
        )
        for component in plan.components
    ]
    return replace(plan, components=tuple(parts), prepared={})


def _mutant(
    plan: ScoringPlan,
    report: CaseReport,
    cases: Sequence[SpecCase | Better],
    kind: str,
    names: tuple[str, ...],
    fault: str,
    change: _Change,
) -> Mutant:
    before = {outcome.case.name: outcome.results[0] for outcome in report.outcomes}
    after = {name: _combined(plan, result, change) for name, result in before.items()}
    values = {name: (result.value,) for name, result in after.items()}
    caught = [
        outcome.case.name for outcome in report.outcomes if misses(outcome.case, after[outcome.case.name])
    ]
    caught += [
        f"{case.better} over {case.than}"
        for case in cases
        if isinstance(case, Better) and case_order(case, values).miss
    ]
    changed = tuple(name for name in before if before[name].value != after[name].value)
    return Mutant(kind=kind, components=names, fault=fault, caught_by=tuple(caught), changed=changed)


def _combined(plan: ScoringPlan, result: RewardResult, change: _Change) -> RewardResult:
    """Return the result under a fault; the spec's range applies only if it clips."""
    grades = change(result.components)
    reward = combine(plan, list(grades.values()), bounds=plan.range if plan.clip else None)
    return replace(
        result,
        value=reward.value,
        status=reward.status,
        verdict=reward.verdict,
        failed_checks=reward.failed_checks,
        error=reward.error,
        components=grades,
    )


def _faults(plan: ScoringPlan, graded: set[str]) -> Iterator[tuple[str, tuple[str, ...], str, _Change]]:
    entries = [component.entry for component in plan.components if component.name in graded]
    for entry in entries:
        name = (entry.name,)
        if entry.kind != "check":
            yield "drop", name, f"{entry.name} is removed", _drop(entry.name)
        yield "invert", name, f"{entry.name} is inverted", _revalue(entry, _inverted)
        if entry.kind == "check":
            yield "gate-removed", name, f"{entry.name} does not gate", _drop(entry.name)
            continue
        yield "constant-maximum", name, f"{entry.name} always has its best value", _revalue(entry, _best)
        if entry.range is not None and entry.range[0] < entry.range[1]:
            yield "widened-range", name, f"{entry.name} has doubled values", _revalue(entry, _widened)
        if entry.kind == "verifier" and plan.combine == "gated":
            yield "gate-removed", name, f"{entry.name} does not gate", _pass(entry.name)
    if plan.combine in _SUMS or not isinstance(plan.combine, str):
        weighted = [entry for entry in entries if entry.kind != "check"]
        for first, second in combinations(weighted, 2):
            if first.weight != second.weight:
                fault = f"{first.name} and {second.name} have swapped weights"
                yield "weights-swapped", (first.name, second.name), fault, _swap(first, second)


def _drop(name: str) -> _Change:
    return lambda grades: {key: grade for key, grade in grades.items() if key != name}


def _pass(name: str) -> _Change:
    return lambda grades: {
        key: replace(grade, verdict="pass") if key == name else grade for key, grade in grades.items()
    }


def _swap(first: ComponentEntry, second: ComponentEntry) -> _Change:
    weights = {first.name: second.weight, second.name: first.weight}
    return lambda grades: {
        key: replace(grade, weight=weights.get(key, grade.weight)) for key, grade in grades.items()
    }


def _revalue(entry: ComponentEntry, value: Callable[[ComponentEntry, float], float]) -> _Change:
    """Return a change that replaces each value of a component."""

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
    """Return the value that gives the highest reward: of a penalty the lowest."""
    low, high = entry.range or (0.0, 1.0)
    return low if entry.kind == "penalty" else high


def _widened(entry: ComponentEntry, value: float) -> float:
    low, _ = entry.range or (0.0, 1.0)
    return low + 2 * (value - low)
