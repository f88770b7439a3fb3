"""Runs of a spec's cases: expected and actual results, coverage of components, and stability."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mttp.model.episodes import Grade
from mttp.model.results import RewardResult
from mttp.rewards import scoring
from mttp.rewards.agreement import Agreement, agreement
from mttp.rewards.document import Better, Bounds, Expected, SpecCase
from mttp.rewards.episodic import EpisodeScorer
from mttp.rewards.plan import ScoringPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The results of one case."""

    case: SpecCase
    """The case with its sample and expectations."""
    results: tuple[RewardResult, ...]
    """The result of each repeat."""
    misses: tuple[str, ...]
    """Messages about results that differ from the expected ones; empty if the case passed."""

    @property
    def passed(self) -> bool:
        """Whether every repeat gave the expected result."""
        return not self.misses

    @property
    def values(self) -> tuple[float | None, ...]:
        """The reward of each repeat, None for one without a reward."""
        return tuple(result.value for result in self.results)

    @property
    def value(self) -> float | None:
        """The mean reward; None if a repeat has none."""
        known = [value for value in self.values if value is not None]
        return statistics.fmean(known) if len(known) == len(self.values) else None

    @property
    def unstable(self) -> Mapping[str, tuple[float | None, ...]]:
        """The values of the components whose values differ between repeats, by name."""
        by_name = {
            name: tuple(result.components[name].value for result in self.results)
            for name in self.results[0].components
        }
        return {name: values for name, values in by_name.items() if len(set(values)) > 1}

    @property
    def seconds(self) -> float:
        """The time that all repeats took, in seconds."""
        return sum(result.duration for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOrder:
    """The expected order of two cases, and their actual margin."""

    stated: Better
    """The expected order and margin."""
    margin: float | None
    """The smallest margin of all repeats; None if a case has no reward."""
    miss: str | None
    """A message if the order is not the expected one; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentCoverage:
    """The values of one component over all cases."""

    name: str
    """The component's name."""
    values: tuple[float, ...]
    """The distinct values, sorted."""
    failing: tuple[str, ...]
    """The cases in which a check or verifier failed."""
    gap: str | None
    """A message about behaviour that no case shows; None without a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instability:
    """How many samples had different results between repeats."""

    samples: int
    """The number of samples."""
    unstable: int
    """The number of samples whose reward, verdict or components differ between repeats."""
    repeats: int
    """The number of repeats of each sample."""

    @property
    def rate(self) -> float | None:
        """The share of unstable samples; None without samples."""
        return self.unstable / self.samples if self.samples else None


def instability(scored: Sequence[Sequence[RewardResult]]) -> Instability:
    """Return the instability of samples, given the results of each sample's repeats."""
    return Instability(
        samples=len(scored),
        unstable=sum(len({_compared(result) for result in results}) > 1 for results in scored),
        repeats=max(map(len, scored), default=0),
    )


def _compared(result: RewardResult) -> tuple[object, ...]:
    """Return the parts of a result that must be equal in all repeats."""
    grades = [(name, grade.value, grade.status, grade.verdict) for name, grade in result.components.items()]
    return result.value, result.status, result.verdict, tuple(grades)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """The results of all cases of a spec."""

    outcomes: tuple[CaseResult, ...]
    """The results of each case, in the document's order."""
    orders: tuple[CaseOrder, ...]
    """The expected orders of cases, in the document's order."""
    coverage: tuple[ComponentCoverage, ...]
    """The values of each component."""
    instability: Instability | None
    """How many cases had different results between repeats; None without repeats."""
    agreement: Agreement | None
    """The agreement of rewards with people's scores; None if fewer than two cases have both."""

    @property
    def failed(self) -> list[str]:
        """The messages of all failed cases and orders, each with its case."""
        cases = [f"{outcome.case.name}: {miss}" for outcome in self.outcomes for miss in outcome.misses]
        return [*cases, *(order.miss for order in self.orders if order.miss)]


def run_cases(
    plan: ScoringPlan,
    cases: Sequence[SpecCase | Better],
    *,
    repeats: int = 1,
    human: Mapping[str, float] | None = None,
) -> CaseReport:
    """
    Score the cases, each `repeats` times, and compare the results with the expected ones.

    The cases of a spec with a relative component are one group.
    `human` has people's scores by case name, which override `human` in the cases.
    """
    samples = [case for case in cases if isinstance(case, SpecCase)]
    rounds = [_round(plan, samples) for _ in range(repeats)]
    outcomes = []
    for case, *results in zip(samples, *rounds, strict=True):
        missed = dict.fromkeys(miss for result in results for miss in misses(case, result))
        outcomes.append(CaseResult(case=case, results=tuple(results), misses=tuple(missed)))
    by_name = {outcome.case.name: outcome.values for outcome in outcomes}
    people = {case.name: case.human for case in samples if case.human is not None} | dict(human or {})
    pairs = [
        (outcome.value, people[outcome.case.name])
        for outcome in outcomes
        if outcome.case.name in people and all(result.status == "ok" for result in outcome.results)
    ]
    return CaseReport(
        outcomes=tuple(outcomes),
        orders=tuple(case_order(case, by_name) for case in cases if isinstance(case, Better)),
        coverage=tuple(_coverage(component.name, outcomes) for component in plan.components if outcomes),
        instability=instability([outcome.results for outcome in outcomes]) if repeats > 1 else None,
        agreement=agreement([(value, person) for value, person in pairs if value is not None]),
    )


def _round(plan: ScoringPlan, cases: Sequence[SpecCase]) -> Sequence[RewardResult]:
    """Score every case once."""
    if any(component.entry.relative for component in plan.components):
        return scoring.rank(plan, [case.input for case in cases]).results if cases else ()
    return [_scored(plan, case) for case in cases]


def _scored(plan: ScoringPlan, case: SpecCase) -> RewardResult:
    """
    Score a case by the components of scope `terminal`, or `step` if there are no others.

    A case with steps is scored as an episode.
    """
    if case.steps:
        episode = EpisodeScorer(plan)
        for sample in case.steps:
            episode.step(sample)
        if any("terminal" in component.scopes for component in plan.components):
            episode.end(case.input)
        return episode.total
    if all(component.entry.scope == "step" for component in plan.components):
        return scoring.score_step(plan, case.input)
    return scoring.score(plan, case.input)


def misses(case: SpecCase, result: RewardResult) -> list[str]:
    """Return messages about differences between a result and the expected one, by default a valid one."""
    expect = case.expect or Expected()
    status = expect.status or "ok"
    texts = [] if result.status == status else [f"status is {result.status}, expected {status}"]
    if texts and result.error:
        texts = [f"{texts[0]}: {result.error}"]
    if expect.value is not None and result.status == status:
        texts += _off("value", result.value, expect.value)
    if expect.verdict not in (None, result.verdict):
        texts.append(f"verdict is {result.verdict}, expected {expect.verdict}")
    checks = expect.failed_checks
    if checks is not None and set(checks) != set(result.failed_checks):
        texts.append(f"failed checks are {_listed(result.failed_checks)}, expected {_listed(checks)}")
    for name, expected in expect.components.items():
        grade = result.components.get(name)
        texts += [f"the spec has no component {name}"] if grade is None else _off(name, grade.value, expected)
    return texts


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _off(what: str, value: float | None, expected: float | Bounds) -> list[str]:
    """Return a message if a number is outside of its expected bounds."""
    bounds = expected if isinstance(expected, Bounds) else Bounds(equals=expected)
    if value is None:
        return [f"{what} has no value"]
    if bounds.equals is not None and abs(value - bounds.equals) > bounds.tolerance:
        return [f"{what} is {value:.6g}, expected {bounds.equals:.6g}"]
    if bounds.min is not None and value < bounds.min - bounds.tolerance:
        return [f"{what} is {value:.6g}, expected {bounds.min:.6g} or more"]
    if bounds.max is not None and value > bounds.max + bounds.tolerance:
        return [f"{what} is {value:.6g}, expected {bounds.max:.6g} or less"]
    return []


def case_order(stated: Better, values: Mapping[str, Sequence[float | None]]) -> CaseOrder:
    """Compare the rewards of two cases in each repeat with their expected order."""
    unknown = [name for name in (stated.better, stated.than) if name not in values]
    if unknown:
        return CaseOrder(stated=stated, margin=None, miss=f"the spec has no case {' and '.join(unknown)}")
    margins = [
        None if more is None or less is None else more - less
        for more, less in zip(values[stated.better], values[stated.than], strict=True)
    ]
    known = [margin for margin in margins if margin is not None]
    pair = f"{stated.better} over {stated.than}"
    if len(known) < len(margins) or not known:
        return CaseOrder(stated=stated, margin=None, miss=f"{pair}: one of the cases has no reward")
    least = min(known)
    is_enough = least >= stated.by - 1e-9 if stated.by else least > 0
    expected = f"{stated.by:.6g} or more" if stated.by else "more than 0"
    miss = None if is_enough else f"{pair}: the margin is {least:.6g}, expected {expected}"
    return CaseOrder(stated=stated, margin=least, miss=miss)


def _coverage(name: str, outcomes: Sequence[CaseResult]) -> ComponentCoverage:
    grades = [
        (outcome.case.name, result.components[name])
        for outcome in outcomes
        for result in outcome.results
        if name in result.components
    ]
    values = tuple(sorted({grade.value for _, grade in grades if grade.value is not None}))
    failing = tuple(dict.fromkeys(case for case, grade in grades if grade.verdict == "fail"))
    return ComponentCoverage(name=name, values=values, failing=failing, gap=_gap(grades, values, failing))


def _gap(grades: Sequence[tuple[str, Grade]], values: Sequence[float], failing: Sequence[str]) -> str | None:
    if not values:
        return "never has a value"
    if grades[0][1].kind in ("check", "verifier") and not failing:
        return "never fails"
    if any(grade.verdict is not None for _, grade in grades) and len(failing) == len(
        {case for case, _ in grades}
    ):
        return "never passes"
    return f"is always {values[0]:.6g}" if len(values) == 1 else None
