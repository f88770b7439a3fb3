"""Scoring of single samples, steps, batches and groups by a scoring plan."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

from mttp.errors import NeedsGroup, SpecError
from mttp.model import clock, hooks
from mttp.model.episodes import Grade
from mttp.model.hooks import ScoringObserver
from mttp.model.results import Ranking, RewardResult
from mttp.model.scorings import MISSING_INPUT
from mttp.rewards.calling import Caller, Sample
from mttp.rewards.combining import checks, combine, needs_verifiers
from mttp.rewards.grading import grade, included, uncalled
from mttp.rewards.inputs import Inputs
from mttp.rewards.plan import Component, ScoringPlan
from mttp.rewards.ranking import GroupComparison

Settle: TypeAlias = Callable[[RewardResult], RewardResult]
"""A last change of a result before it is recorded."""

_UNWATCHED: AbstractContextManager[None] = nullcontext()
_GATES, _COSTLY_GATES, _REST = range(3)
"""The stages in which components are called: gates, costly gates, and all others."""


def score(
    plan: ScoringPlan,
    sample: Sample,
    *,
    closed: str | None = None,
    settle: Settle | None = None,
    watched: bool = True,
) -> RewardResult:
    """
    Score one sample by the components of scope `terminal`.

    `closed` is the reason why costly components are not called. `settle` changes the result before it is
    recorded in the current episode; with `watched=False` it is not recorded.
    Errors of components are in the result; raises NeedsGroup when one is relative.
    """
    scorer = _absolute(plan, "terminal")
    watch = hooks.begin(scorer.name, of_step=False) if watched else None
    return scorer.score(sample, watch, closed, settle)


def score_step(
    plan: ScoringPlan, sample: Sample, *, settle: Settle | None = None, watched: bool = True
) -> RewardResult:
    """Score one step by the components of scope `step`; raises NeedsGroup when one is relative."""
    scorer = _absolute(plan, "step")
    watch = hooks.begin(scorer.name, of_step=True) if watched else None
    return scorer.score(sample, watch, None, settle)


async def ascore(plan: ScoringPlan, sample: Sample) -> RewardResult:
    """Score one sample as `score` does, with asynchronous components and judges running concurrently."""
    scorer = _absolute(plan, "terminal")
    return await scorer.score_async(sample, hooks.begin(scorer.name, of_step=False))


def score_batch(plan: ScoringPlan, samples: Sequence[Sample], *, concurrency: int = 1) -> list[RewardResult]:
    """
    Score many samples, up to `concurrency` at once.

    A component that takes batches is called once for all samples. Nothing is recorded here, since the
    episodes of the samples are not known.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}; pass 1 or more")
    return _absolute(plan, "terminal").score_many(samples, None, concurrency=concurrency)


def rank(plan: ScoringPlan, group: Sequence[Sample], *, seed: int | None = None) -> Ranking:
    """
    Score the members of one group, calling relative components once for all of them.

    A `seed` shuffles the order that relative components receive, against a judge's position bias.
    Their values are comparable only within the group.
    Raises SpecError when the group is empty.
    """
    if not group:
        raise SpecError("the group is empty; pass at least one sample to rank")
    comparison = GroupComparison(group, seed)
    results = _scorer(plan, "terminal").score_many(group, comparison)
    sources = comparison.sources
    return Ranking(
        results=tuple(replace(result, provenance=sources) for result in results), provenance=sources
    )


def lacking_inputs(plan: ScoringPlan, names: Collection[str]) -> list[str]:
    """Return the inputs that scoring an episode needs, and that are not among these names."""
    return [*dict.fromkeys(_scorer(plan, "terminal").lacking(names))]


class SampleGrades:
    """The grades of one sample while it passes through the stages of a scorer."""

    __slots__ = ("end", "grades", "included", "sample", "start", "watch", "wrong")

    def __init__(self, scorer: Scorer, sample: Sample, watch: ScoringObserver | None = None) -> None:
        self.sample = sample
        self.watch = watch
        self.wrong = scorer.inputs.problem(sample)
        """The error of an invalid sample, for which no component is called; else None."""
        self.grades: dict[str, Grade] = {}
        self.included = (
            {}
            if self.wrong
            else {part.name: SampleGrades(part.inner, sample) for part in scorer.graders if part.inner}
        )
        """The grades by each included spec, by its name."""
        self.start = self.end = 0

    def checks(self) -> Iterator[tuple[str, Grade]]:
        """Yield the checks graded so far by name; those of included specs by path."""
        yield from checks(self.grades.values())
        for name, inner in self.included.items():
            for path, check in inner.checks():
                yield f"{name}.{path}", check


class Grader:
    """One component, ready to grade samples."""

    def __init__(self, component: Component, plan: ScoringPlan, scope: str) -> None:
        self.name = component.name
        self.entry = entry = component.entry
        self._repeats = range(entry.repeats)
        self.inner = None if component.plan is None else _scorer(component.plan, scope)
        """The scorer of an included spec; None for a function."""
        self._caller = None if component.plan is not None else Caller(component, plan)
        self.gates = entry.kind == "check" or (entry.kind == "verifier" and needs_verifiers(plan))
        """Whether its failure sets the reward to the floor."""
        self.is_costly = not entry.always and (
            entry.kind == "judge" or bool(entry.relative) or entry.isolation != "none"
        )
        """Whether it is not called after a gate has decided."""
        if self.inner is not None:
            self.stages = (
                {_COSTLY_GATES, *self.inner.stages} - {_REST} if self.gates else set(self.inner.stages)
            )
        else:
            self.stages = {(_COSTLY_GATES if self.is_costly else _GATES) if self.gates else _REST}

    @property
    def takes_many(self) -> bool:
        """Whether one call takes many samples."""
        return self._caller is not None and self._caller.is_batch

    def lacking(self, names: Collection[str]) -> Iterable[str]:
        """Return the inputs that it needs, and that are not among these names."""
        if self.inner is not None:
            return self.inner.lacking(names)
        return () if self._caller is None else self._caller.lacking(names)

    def grade(self, sample: Sample) -> Grade:
        """Grade one sample."""
        assert self._caller is not None
        start = clock.wall()
        answers = [self._caller.one(sample) for _ in self._repeats]
        return grade(self.entry, answers, start, clock.wall())

    async def grade_async(self, sample: Sample) -> Grade:
        """Grade one sample without blocking the event loop."""
        assert self._caller is not None
        start = clock.wall()
        answers = await asyncio.gather(*[self._caller.one_async(sample) for _ in self._repeats])
        return grade(self.entry, answers, start, clock.wall())

    def together(self, samples: Sequence[Sample]) -> list[Grade]:
        """Grade many samples with one call for each repeat."""
        assert self._caller is not None
        start = clock.wall()
        repeats = [self._caller.many(samples) for _ in self._repeats]
        end = clock.wall()
        return [grade(self.entry, answers, start, end) for answers in zip(*repeats, strict=True)]

    def compared(self, places: Sequence[int], comparison: GroupComparison, path: str) -> list[Grade]:
        """Grade the members of a group at these places, in a new order for each repeat."""
        assert self._caller is not None
        start = clock.wall()
        orders, repeats = comparison.ask(self._caller.many, places, self.entry)
        end = clock.wall()
        grades = [grade(self.entry, answers, start, end) for answers in zip(*repeats, strict=True)]
        comparison.keep(path, self.entry, orders, grades)
        return grades


class Scorer:
    """
    Scores samples by the components of one scope.

    Gates (checks and, under `gated`, verifiers) are called first, costly ones after the others.
    Costly components (judges, relative and isolated ones) are not called after a gate has decided, unless
    they have `always`.
    """

    def __init__(self, plan: ScoringPlan, scope: str) -> None:
        components = [component for component in plan.components if scope in component.scopes]
        if not components:
            raise SpecError(
                f"spec {plan.identity.name} has no component of scope {scope}; add one, or call "
                f"{'score_step' if scope == 'terminal' else 'score'}"
            )
        self.plan = plan
        self.name = plan.identity.name
        self.graders = [Grader(component, plan, scope) for component in components]
        self.inputs = Inputs(plan.inputs)
        self.relative: list[str] = []
        """The names of relative components; those of included specs are dotted paths."""
        for grader in self.graders:
            if grader.inner is not None:
                self.relative += [f"{grader.name}.{path}" for path in grader.inner.relative]
            elif grader.entry.relative:
                self.relative.append(grader.name)
        self.stages: list[int] = sorted({stage for grader in self.graders for stage in grader.stages})
        self._bounds = plan.range if scope == "terminal" else None

    @property
    def takes_many(self) -> bool:
        """Whether a component takes many samples in one call."""
        return any(grader.takes_many or (grader.inner and grader.inner.takes_many) for grader in self.graders)

    def lacking(self, names: Collection[str]) -> Iterator[str]:
        """Yield the inputs that it needs, and that are not among these names."""
        inputs = self.plan.inputs.items()
        yield from (name for name, kind in inputs if not kind.endswith("?") and name not in names)
        for grader in self.graders:
            yield from grader.lacking(names)

    def score(
        self,
        sample: Sample,
        watch: ScoringObserver | None = None,
        closed: str | None = None,
        settle: Settle | None = None,
    ) -> RewardResult:
        """Score one sample."""
        state = SampleGrades(self, sample, watch)
        for stage in self.stages:
            self.advance(stage, state, closed)
        result = self.result(state)
        return self._watched(result if settle is None else settle(result), watch)

    async def score_async(self, sample: Sample, watch: ScoringObserver | None = None) -> RewardResult:
        """Score one sample, with the components of a stage running concurrently."""
        state = SampleGrades(self, sample, watch)
        for stage in self.stages:
            await self.advance_async(stage, state)
        return self._watched(self.result(state), watch)

    def score_many(
        self, samples: Sequence[Sample], comparison: GroupComparison | None, *, concurrency: int = 1
    ) -> list[RewardResult]:
        """Score many samples; with a `comparison` they are the members of a group."""
        states = [SampleGrades(self, sample) for sample in samples]
        steps = [[stage] for stage in self.stages] if self.takes_many else [self.stages]
        with ThreadPoolExecutor(concurrency, thread_name_prefix="mttp-rewards") as pool:
            for stages in steps:
                if self.takes_many:
                    self.together(stages[0], dict(enumerate(states)), comparison)

                def advance(state: SampleGrades, stages: Sequence[int] = stages) -> None:
                    for stage in stages:
                        self.advance(stage, state)

                if concurrency == 1:
                    for state in states:
                        advance(state)
                else:
                    waiting = [
                        pool.submit(contextvars.copy_context().run, advance, state) for state in states
                    ]
                    for future in waiting:
                        future.result()
        return [self.result(state) for state in states]

    # One stage.

    def advance(self, stage: int, state: SampleGrades, closed: str | None = None) -> None:
        """
        Call the components of a stage that have no grade yet.

        `closed` is the reason why costly components are not called.
        """
        state.start = state.start or clock.wall()
        closed = closed or self._closed(stage, state)
        for grader in self._due(stage, state):
            with state.watch.grading(grader.name) if state.watch is not None else _UNWATCHED:
                if grader.inner is not None:
                    for inner_stage in _stages_of(grader, stage):
                        grader.inner.advance(inner_stage, state.included[grader.name], closed)
                    self._finish(grader, stage, state)
                elif closed and grader.is_costly:
                    state.grades[grader.name] = uncalled(grader.entry, closed)
                else:
                    state.grades[grader.name] = grader.grade(state.sample)
        state.end = clock.wall()

    async def advance_async(self, stage: int, state: SampleGrades, closed: str | None = None) -> None:
        """Call the components of a stage that have no grade yet, concurrently."""
        state.start = state.start or clock.wall()
        closed = closed or self._closed(stage, state)

        async def graded(grader: Grader) -> None:
            with state.watch.grading(grader.name) if state.watch is not None else _UNWATCHED:
                if grader.inner is not None:
                    for inner_stage in _stages_of(grader, stage):
                        await grader.inner.advance_async(inner_stage, state.included[grader.name], closed)
                    self._finish(grader, stage, state)
                elif closed and grader.is_costly:
                    state.grades[grader.name] = uncalled(grader.entry, closed)
                else:
                    state.grades[grader.name] = await grader.grade_async(state.sample)

        await asyncio.gather(*map(graded, self._due(stage, state)))
        state.end = clock.wall()

    def together(
        self,
        stage: int,
        states: Mapping[int, SampleGrades],
        comparison: GroupComparison | None,
        closed: Mapping[int, str | None] | None = None,
        path: str = "",
    ) -> None:
        """Call the components of a stage that take many samples, for all valid samples."""
        fit = {place: state for place, state in states.items() if not state.wrong}
        known = closed or {}
        reasons = {place: known.get(place) or self._closed(stage, state) for place, state in fit.items()}
        for grader in self.graders if fit else ():
            if grader.inner is not None:
                inner = {place: state.included[grader.name] for place, state in fit.items()}
                for inner_stage in _stages_of(grader, stage):
                    grader.inner.together(inner_stage, inner, comparison, reasons, f"{path}{grader.name}.")
            elif stage in grader.stages and grader.takes_many:
                called = [place for place in fit if not (reasons[place] and grader.is_costly)]
                self._call_together(grader, called, fit, comparison, path)

    def _call_together(
        self,
        grader: Grader,
        places: Sequence[int],
        states: Mapping[int, SampleGrades],
        comparison: GroupComparison | None,
        path: str,
    ) -> None:
        if not places:
            return
        if grader.entry.relative and comparison is not None:
            grades = grader.compared(places, comparison, f"{path}{grader.name}")
        else:
            grades = grader.together([states[place].sample for place in places])
        for place, graded in zip(places, grades, strict=True):
            states[place].grades[grader.name] = graded

    def _due(self, stage: int, state: SampleGrades) -> list[Grader]:
        """Return the components to call in a stage; none for an invalid sample."""
        if state.wrong:
            return []
        return [part for part in self.graders if stage in part.stages and part.name not in state.grades]

    def _finish(self, grader: Grader, stage: int, state: SampleGrades) -> None:
        """Store the grade of an included spec after its last stage."""
        if stage == max(grader.stages):
            assert grader.inner is not None
            inner = grader.inner.result(state.included.pop(grader.name))
            state.grades[grader.name] = included(grader.entry, inner)

    def _closed(self, stage: int, state: SampleGrades) -> str | None:
        """Return the reason why costly components are not called, or None while no gate has decided."""
        if stage == _GATES or state.wrong:
            return None
        gates = dict(state.checks())
        failed = sorted(path for path, check in gates.items() if check.verdict == "fail")
        if failed:
            return f"check{'s' if len(failed) > 1 else ''} {', '.join(failed)} failed"
        if stage == _COSTLY_GATES:
            return None
        gates |= {grader.name: state.grades[grader.name] for grader in self.graders if grader.gates}
        for path, gate in sorted(gates.items()):
            if gate.verdict != "pass":
                return f"{gate.kind} {path} {'failed' if gate.verdict else 'has no verdict'}"
        return None

    def result(self, state: SampleGrades) -> RewardResult:
        """Combine the grades to a result; an invalid sample has no grades."""
        plan = self.plan
        shared: dict[str, Any] = {
            "range": self._bounds,
            "spec": plan.identity,
            "document": plan.document,
            "start_time": state.start,
            "end_time": state.end,
        }
        if state.wrong is not None:
            return RewardResult(
                value=plan.floor if plan.on_invalid == "floor" else None,
                status="error",
                error=state.wrong,
                error_type=MISSING_INPUT,
                components={grader.name: uncalled(grader.entry) for grader in self.graders},
                **shared,
            )
        grades = {grader.name: state.grades[grader.name] for grader in self.graders}
        reward = combine(plan, list(grades.values()), bounds=self._bounds)
        for name, amount in reward.contributions.items():  # in place, as the grades are not shared yet
            object.__setattr__(grades[name], "contribution", amount)
        return RewardResult(
            value=reward.value,
            status=reward.status,
            verdict=reward.verdict,
            failed_checks=reward.failed_checks,
            components=grades,
            error=reward.error,
            error_type=reward.error_type,
            clipped=reward.clipped,
            **shared,
        )

    def _watched(self, result: RewardResult, watch: ScoringObserver | None) -> RewardResult:
        span_id = "" if watch is None else watch.scored(result)
        return replace(result, span_id=span_id) if span_id else result


def _stages_of(grader: Grader, stage: int) -> tuple[int, ...]:
    """Return the stages of an included spec to run in a stage; one that gates finishes with the gates."""
    return (stage, _REST) if grader.gates and stage == _COSTLY_GATES else (stage,)


def _scorer(plan: ScoringPlan, scope: str) -> Scorer:
    """Return the plan's scorer of a scope, from its cache."""
    scorer: Scorer | None = plan.prepared.get(scope)
    if scorer is None:
        scorer = plan.prepared[scope] = Scorer(plan, scope)
    return scorer


def _absolute(plan: ScoringPlan, scope: str) -> Scorer:
    """Return the plan's scorer of a scope; raises NeedsGroup when a component is relative."""
    scorer = _scorer(plan, scope)
    if scorer.relative:
        raise NeedsGroup(
            f"spec {scorer.name}: {', '.join(scorer.relative)} compares the samples of a group;"
            " score the group with rank(group)"
        )
    return scorer
