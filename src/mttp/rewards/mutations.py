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
        return tuple(one for one in self.mutants if one.survived)


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
                plan, {one.name for one in report.coverage if one.values}
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
            one,
            entry=one.entry.model_copy(update={"always": True}),
            plan=None if one.plan is None else _exhaustive(one.plan),
        )
        for one in plan.components
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
    before = {one.case.name: one.results[0] for one in report.outcomes}
    after = {name: _combined(plan, result, change) for name, result in before.items()}
    values = {name: (result.value,) for name, result in after.items()}
    caught = [one.case.name for one in report.outcomes if misses(one.case, after[one.case.name])]
    caught += [
        f"{one.better} over {one.than}"
        for one in cases
        if isinstance(one, Better) and case_order(one, values).miss
    ]
    changed = tuple(name for name in before if before[name].value != after[name].value)
    return Mutant(kind=kind, components=names, fault=fault, caught_by=tuple(caught), changed=changed)


def _combined(plan: ScoringPlan, result: RewardResult, change: _Change) -> RewardResult:
    """Return the result under a fault; the spec's range applies only if it clips."""
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
        for one, other in combinations(weighted, 2):
            if one.weight != other.weight:
                fault = f"{one.name} and {other.name} have swapped weights"
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
