"""Scoring samples by a spec: one, a step, many, or a group whose members are compared."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from mttp.episodes import Grade
from mttp.errors import NeedsGroup, SpecError
from mttp.rewards import watching
from mttp.rewards.calling import Caller, Sample
from mttp.rewards.combining import combine
from mttp.rewards.grading import grade, included
from mttp.rewards.inputs import Inputs
from mttp.rewards.plan import Component, Plan
from mttp.rewards.ranking import provenance, shown_in
from mttp.rewards.results import Ranking, RewardResult
from mttp.rewards.watching import Watch
from mttp.scorings import MISSING_INPUT

__all__ = ["ascore", "rank", "score", "score_batch", "score_step"]

_Grades = dict[str, Grade]
_UNWATCHED: AbstractContextManager[None] = nullcontext()


def score(plan: Plan, sample: Sample) -> RewardResult:
    """
    What the spec pays for one sample, by its terminal components.

    Whatever a component does is in the result; raises NeedsGroup where one is relative.
    """
    scorer = _absolute(plan, "terminal")
    return scorer.score(sample, watching.begin(scorer.name, of_step=False))


def score_step(plan: Plan, sample: Sample) -> RewardResult:
    """The same for one step, by the components whose scope is a step."""
    scorer = _absolute(plan, "step")
    return scorer.score(sample, watching.begin(scorer.name, of_step=True))


async def ascore(plan: Plan, sample: Sample) -> RewardResult:
    """As `score`, with asynchronous components and judges side by side."""
    scorer = _absolute(plan, "terminal")
    return await scorer.score_async(sample, watching.begin(scorer.name, of_step=False))


def score_batch(plan: Plan, samples: Sequence[Sample], *, concurrency: int = 1) -> list[RewardResult]:
    """
    What the spec pays for each sample, as many at once as `concurrency` says.

    A component that takes a batch is called once for all.
    Nothing of it is recorded: which sample belongs to which episode is known to whoever pays the results.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}, expected 1 or more")
    scorer = _absolute(plan, "terminal")
    known = scorer.in_batches(samples)
    if concurrency == 1:
        return [scorer.score(sample, known=known[place]) for place, sample in enumerate(samples)]
    with ThreadPoolExecutor(concurrency, thread_name_prefix="mttp-rewards") as pool:
        waiting = [
            pool.submit(contextvars.copy_context().run, scorer.score, sample, None, known[place])
            for place, sample in enumerate(samples)
        ]
        return [one.result() for one in waiting]


def rank(plan: Plan, group: Sequence[Sample], *, seed: int | None = None) -> Ranking:
    """
    What the spec pays for the members of one group, its relative components called once for all of them.

    With a `seed` they are shown the members in an order that is drawn with it, against a judge's habits.
    The values of relative components mean nothing beyond the group.
    Raises SpecError where the group is empty.
    """
    if not group:
        raise SpecError("a group of nobody can't be ranked")
    scorer = _scorer(plan, "terminal")
    order = shown_in(len(group), seed)
    known: list[_Grades] = [{} for _ in group]
    sources = {}
    for grader in scorer.graders:
        if grader.component.entry.relative:
            shown = grader.together([group[place] for place in order])
            for place, one in zip(order, shown, strict=True):
                known[place][grader.name] = one
            sources[grader.name] = provenance(grader.component.entry, group, order, seed, shown)
    results = [scorer.score(sample, known=known[place]) for place, sample in enumerate(group)]
    return Ranking(
        results=tuple(replace(result, provenance=sources) for result in results), provenance=sources
    )


class Grader:
    """One component, ready to grade samples."""

    def __init__(self, component: Component, plan: Plan) -> None:
        self.component = component
        self.name = component.name
        self._entry = component.entry
        self._repeats = range(self._entry.repeats)
        self._inner = None if component.plan is None else _absolute(component.plan, "terminal")
        self._caller = None if component.plan is not None else Caller(component, plan)

    @property
    def takes_batches(self) -> bool:
        """Whether one call is for many samples."""
        return self._caller is not None and self._caller.is_batch and not self._entry.relative

    @property
    def unknown(self) -> Grade:
        """The grade of a sample that can't be graded."""
        weight = None if self._entry.kind == "check" else self._entry.weight
        return Grade(name=self.name, kind=self._entry.kind, status="missing", weight=weight)

    def grade(self, sample: Sample) -> Grade:
        """The grade of one sample."""
        if self._inner is not None:
            return included(self._entry, self._inner.score(sample))
        assert self._caller is not None
        start = time.time_ns()
        answers = [self._caller.one(sample) for _ in self._repeats]
        return grade(self._entry, answers, start, time.time_ns())

    async def grade_async(self, sample: Sample) -> Grade:
        """The same, without holding up others."""
        if self._inner is not None:
            return included(self._entry, await self._inner.score_async(sample))
        assert self._caller is not None
        start = time.time_ns()
        answers = await asyncio.gather(*[self._caller.one_async(sample) for _ in self._repeats])
        return grade(self._entry, answers, start, time.time_ns())

    def together(self, samples: Sequence[Sample]) -> list[Grade]:
        """The grades of many samples, of one call for each repeat."""
        assert self._caller is not None
        start = time.time_ns()
        repeats = [self._caller.many(samples) for _ in self._repeats]
        end = time.time_ns()
        return [grade(self._entry, answers, start, end) for answers in zip(*repeats, strict=True)]


class Scorer:
    """The components of one scope, and what they come to."""

    def __init__(self, plan: Plan, scope: str) -> None:
        components = [one for one in plan.components if one.entry.scope == scope]
        if not components:
            raise SpecError(f"spec {plan.identity.name} has no components of scope {scope}")
        self.plan = plan
        self.name = plan.identity.name
        self.graders = [Grader(one, plan) for one in components]
        self.relative = [one.name for one in components if one.entry.relative]
        self._inputs = Inputs(plan.inputs)
        self._bounds = plan.range if scope == "terminal" else None

    def score(
        self, sample: Sample, watch: Watch | None = None, known: Mapping[str, Grade] | None = None
    ) -> RewardResult:
        """The reward of one sample; components that are `known` are not called."""
        start = time.time_ns()
        wrong = self._inputs.problem(sample)
        grades: list[Grade] = []
        for grader in () if wrong else self.graders:
            found = known.get(grader.name) if known else None
            if found is None:
                with watch.grading(grader.name) if watch is not None else _UNWATCHED:
                    found = grader.grade(sample)
            grades.append(found)
        return self._watched(self._result(grades, wrong, start), watch)

    async def score_async(self, sample: Sample, watch: Watch | None = None) -> RewardResult:
        """The same, components side by side."""
        start = time.time_ns()
        wrong = self._inputs.problem(sample)

        async def graded(grader: Grader) -> Grade:
            with watch.grading(grader.name) if watch is not None else _UNWATCHED:
                return await grader.grade_async(sample)

        grades = [] if wrong else await asyncio.gather(*map(graded, self.graders))
        return self._watched(self._result(grades, wrong, start), watch)

    def in_batches(self, samples: Sequence[Sample]) -> list[_Grades]:
        """What the components that take batches give each sample that has its inputs."""
        known: list[_Grades] = [{} for _ in samples]
        fit = [place for place, sample in enumerate(samples) if self._inputs.problem(sample) is None]
        for grader in self.graders if fit else ():
            if grader.takes_batches:
                grades = grader.together([samples[place] for place in fit])
                for place, found in zip(fit, grades, strict=True):
                    known[place][grader.name] = found
        return known

    def _result(self, grades: Sequence[Grade], wrong: str | None, start: int) -> RewardResult:
        """Grades as a reward; a sample that lacks inputs has none."""
        plan = self.plan
        shared: dict[str, Any] = {
            "range": self._bounds,
            "spec": plan.identity,
            "document": plan.document,
            "start_time": start,
            "end_time": max(start, time.time_ns()),
        }
        if wrong is not None:
            value = plan.floor if plan.on_invalid == "floor" else None
            status = "ok" if value is not None else "error"
            unknown = {one.name: one.unknown for one in self.graders}
            return RewardResult(
                value=value,
                status=status,
                error=wrong,
                error_type=MISSING_INPUT,
                components=unknown,
                **shared,
            )
        found = combine(plan, grades, bounds=self._bounds)
        for one in grades if found.contributions else ():
            if one.name in found.contributions:  # nobody else has seen the grade so far
                object.__setattr__(one, "contribution", found.contributions[one.name])
        return RewardResult(
            value=found.value,
            status=found.status,
            verdict=found.verdict,
            failed_checks=found.failed_checks,
            components={one.name: one for one in grades},
            error=found.error,
            error_type=found.error_type,
            clipped=found.clipped,
            **shared,
        )

    def _watched(self, result: RewardResult, watch: Watch | None) -> RewardResult:
        span_id = "" if watch is None else watch.scored(result)
        return replace(result, span_id=span_id) if span_id else result


def _scorer(plan: Plan, scope: str) -> Scorer:
    """The plan's scorer, made once."""
    found: Scorer | None = plan.prepared.get(scope)
    if found is None:
        found = plan.prepared[scope] = Scorer(plan, scope)
    return found


def _absolute(plan: Plan, scope: str) -> Scorer:
    """The same, which must need no group."""
    scorer = _scorer(plan, scope)
    if scorer.relative:
        raise NeedsGroup(
            f"spec {scorer.name}: {', '.join(scorer.relative)} compares the samples of a group;"
            " score them together with rank(group)"
        )
    return scorer
