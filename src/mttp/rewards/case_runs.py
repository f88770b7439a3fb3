"""The cases of a spec, scored: what was expected of each, and what became of it."""

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

__all__ = [
    "Coverage",
    "Instability",
    "Outcome",
    "Rivalry",
    "Trial",
    "instability",
    "misses",
    "rivalry",
    "try_cases",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case, scored as often as was asked."""

    case: SpecCase
    """What was scored, and what was expected."""
    results: tuple[RewardResult, ...]
    """What it was given each time."""
    misses: tuple[str, ...]
    """What was not as expected, in words; empty where the case passed."""

    @property
    def passed(self) -> bool:
        """Whether all was as expected, each time."""
        return not self.misses

    @property
    def values(self) -> tuple[float | None, ...]:
        """The rewards, None where there is none."""
        return tuple(result.value for result in self.results)

    @property
    def value(self) -> float | None:
        """Their mean; None where one of them is missing."""
        known = [value for value in self.values if value is not None]
        return statistics.fmean(known) if len(known) == len(self.values) else None

    @property
    def unstable(self) -> Mapping[str, tuple[float | None, ...]]:
        """What the same input was given by the components whose answers differ."""
        found = {
            name: tuple(result.components[name].value for result in self.results)
            for name in self.results[0].components
        }
        return {name: values for name, values in found.items() if len(set(values)) > 1}

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return sum(result.duration for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """Two cases, one of which is to be paid more."""

    stated: Better
    """Which is better, and by how much."""
    margin: float | None
    """By how much it was, at least; None where one of them has no reward."""
    miss: str | None
    """What was not as expected, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the cases show of one component."""

    name: str
    """The component."""
    values: tuple[float, ...]
    """The different values that it gave, sorted."""
    failing: tuple[str, ...]
    """Of a check or a verifier, the cases in which it failed."""
    gap: str | None
    """What no case shows of it, in words; None where nothing is lacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instability:
    """How many inputs were not given the same each time that they were scored."""

    samples: int
    """Inputs that were scored several times."""
    unstable: int
    """Those whose reward, verdict or components differ from time to time."""
    repeats: int
    """How often each was scored."""

    @property
    def rate(self) -> float | None:
        """The share of the unstable; None where nothing was scored."""
        return self.unstable / self.samples if self.samples else None


def instability(scored: Sequence[Sequence[RewardResult]]) -> Instability:
    """The instability of inputs, each with what it was given each time."""
    return Instability(
        samples=len(scored),
        unstable=sum(len({_answer(result) for result in results}) > 1 for results in scored),
        repeats=max(map(len, scored), default=0),
    )


def _answer(result: RewardResult) -> tuple[object, ...]:
    """What must be the same each time."""
    grades = [(name, one.value, one.status, one.verdict) for name, one in result.components.items()]
    return result.value, result.status, result.verdict, tuple(grades)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All cases of a spec, scored."""

    outcomes: tuple[Outcome, ...]
    """Case by case, in the document's order."""
    rivalries: tuple[Rivalry, ...]
    """Pairs of cases, in the document's order."""
    coverage: tuple[Coverage, ...]
    """Component by component."""
    instability: Instability | None
    """How many cases were not given the same each time; None where each was scored once."""
    agreement: Agreement | None
    """How rewards agree with what people gave; None where fewer than two cases have both."""

    @property
    def failed(self) -> list[str]:
        """What was not as expected, in words, each with its case."""
        cases = [f"{one.case.name}: {miss}" for one in self.outcomes for miss in one.misses]
        return [*cases, *(one.miss for one in self.rivalries if one.miss)]


def try_cases(
    plan: ScoringPlan,
    cases: Sequence[SpecCase | Better],
    *,
    repeats: int = 1,
    human: Mapping[str, float] | None = None,
) -> Trial:
    """
    Score the cases, each `repeats` times, and hold them against what is expected.

    The cases of a spec with a relative component are one group.
    `human` are people's scores by case, which go before those in the cases.
    """
    samples = [case for case in cases if isinstance(case, SpecCase)]
    rounds = [_round(plan, samples) for _ in range(repeats)]
    outcomes = []
    for case, *results in zip(samples, *rounds, strict=True):
        missed = dict.fromkeys(miss for result in results for miss in misses(case, result))
        outcomes.append(Outcome(case=case, results=tuple(results), misses=tuple(missed)))
    by_name = {outcome.case.name: outcome.values for outcome in outcomes}
    people = {case.name: case.human for case in samples if case.human is not None} | dict(human or {})
    pairs = [
        (one.value, people[one.case.name])
        for one in outcomes
        if one.case.name in people and all(result.status == "ok" for result in one.results)
    ]
    return Trial(
        outcomes=tuple(outcomes),
        rivalries=tuple(rivalry(one, by_name) for one in cases if isinstance(one, Better)),
        coverage=tuple(_coverage(one.name, outcomes) for one in plan.components if outcomes),
        instability=instability([one.results for one in outcomes]) if repeats > 1 else None,
        agreement=agreement([(value, person) for value, person in pairs if value is not None]),
    )


def _round(plan: ScoringPlan, cases: Sequence[SpecCase]) -> Sequence[RewardResult]:
    """Every case once."""
    if any(one.entry.relative for one in plan.components):
        return scoring.rank(plan, [case.input for case in cases]).results if cases else ()
    return [_scored(plan, case) for case in cases]


def _scored(plan: ScoringPlan, case: SpecCase) -> RewardResult:
    """
    By the terminal components, or by those of a step where there are no others.

    A case with steps is an episode, and scored as a whole.
    """
    if case.steps:
        episode = EpisodeScorer(plan)
        for sample in case.steps:
            episode.step(sample)
        if any("terminal" in one.scopes for one in plan.components):
            episode.end(case.input)
        return episode.total
    if all(one.entry.scope == "step" for one in plan.components):
        return scoring.score_step(plan, case.input)
    return scoring.score(plan, case.input)


def misses(case: SpecCase, result: RewardResult) -> list[str]:
    """What of a result is not as the case expects; unless it says otherwise, it has to be valid."""
    expect = case.expect or Expected()
    status = expect.status or "ok"
    found = [] if result.status == status else [f"status is {result.status}, expected {status}"]
    if found and result.error:
        found = [f"{found[0]}: {result.error}"]
    if expect.value is not None and result.status == status:
        found += _off("value", result.value, expect.value)
    if expect.verdict not in (None, result.verdict):
        found.append(f"verdict is {result.verdict}, expected {expect.verdict}")
    stated = expect.failed_checks
    if stated is not None and set(stated) != set(result.failed_checks):
        found.append(f"failed checks are {_listed(result.failed_checks)}, expected {_listed(stated)}")
    for name, expected in expect.components.items():
        grade = result.components.get(name)
        found += [f"there is no component {name}"] if grade is None else _off(name, grade.value, expected)
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _off(what: str, value: float | None, expected: float | Bounds) -> list[str]:
    """Where a number is not what it should be."""
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


def rivalry(stated: Better, values: Mapping[str, Sequence[float | None]]) -> Rivalry:
    """Whether one case was paid more than another, each time that both were scored."""
    unknown = [name for name in (stated.better, stated.than) if name not in values]
    if unknown:
        return Rivalry(stated=stated, margin=None, miss=f"there is no case {' and no case '.join(unknown)}")
    margins = [
        None if more is None or less is None else more - less
        for more, less in zip(values[stated.better], values[stated.than], strict=True)
    ]
    known = [margin for margin in margins if margin is not None]
    pair = f"{stated.better} over {stated.than}"
    if len(known) < len(margins) or not known:
        return Rivalry(stated=stated, margin=None, miss=f"{pair}: one of them has no reward")
    least = min(known)
    is_enough = least >= stated.by - 1e-9 if stated.by else least > 0
    wanted = f"{stated.by:.6g} or more" if stated.by else "more than 0"
    miss = None if is_enough else f"{pair}: the margin is {least:.6g}, expected {wanted}"
    return Rivalry(stated=stated, margin=least, miss=miss)


def _coverage(name: str, outcomes: Sequence[Outcome]) -> Coverage:
    grades = [
        (outcome.case.name, result.components[name])
        for outcome in outcomes
        for result in outcome.results
        if name in result.components
    ]
    values = tuple(sorted({grade.value for _, grade in grades if grade.value is not None}))
    failing = tuple(dict.fromkeys(case for case, grade in grades if grade.verdict == "fail"))
    return Coverage(name=name, values=values, failing=failing, gap=_gap(grades, values, failing))


def _gap(grades: Sequence[tuple[str, Grade]], values: Sequence[float], failing: Sequence[str]) -> str | None:
    if not values:
        return "never answers"
    if grades[0][1].kind in ("check", "verifier") and not failing:
        return "never fails"
    if any(grade.verdict is not None for _, grade in grades) and len(failing) == len(
        {case for case, _ in grades}
    ):
        return "never passes"
    return f"is always {values[0]:.6g}" if len(values) == 1 else None
