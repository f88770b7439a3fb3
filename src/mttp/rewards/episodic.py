"""Scoring of an episode: its steps one by one, then its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any

from mttp.model.episodes import Grade
from mttp.model.results import RewardResult
from mttp.rewards import scoring
from mttp.rewards.plan import ScoringPlan

_LONGEST = 2000
_KEPT = 1000
"""The number of step results that are kept before they are replaced by their sum."""
_STATUSES = ("error", "abstained", "missing", "partial")


class EpisodeScorer:
    """
    Scores one episode by a spec: call `step` for each step, then `end`.

    The sum of the step rewards stays within the spec's `step_total`: a step that would exceed it is clipped.
    A check that fails in a step sets the reward of that step and of the end to the floor.
    """

    def __init__(self, plan: ScoringPlan) -> None:
        self._plan = plan
        self._step_sum = 0.0
        self._failed_checks: set[str] = set()
        self._steps: list[RewardResult] = []
        self._end: RewardResult | None = None

    def step(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """Score the next step by the components of scope `step`; the sample is as for `RewardSpec.score`."""
        return self._step({**(sample or {}), **inputs})

    def end(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """Score the episode's end by the components of scope `terminal`."""
        return self._finish({**(sample or {}), **inputs})

    def last(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """Score the last step and the end, and return their sum as one unrecorded result."""
        values = {**(sample or {}), **inputs}
        return summed([self._step(values, watched=False), self._finish(values, watched=False)])

    def _step(self, sample: Mapping[str, Any], *, watched: bool = True) -> RewardResult:
        result = scoring.score_step(self._plan, sample, settle=self._capped, watched=watched)
        self._failed_checks.update(result.failed_checks)
        self._steps.append(result)
        if len(self._steps) == _KEPT:
            self._steps = [summed(self._steps)]
        return result

    def _finish(self, sample: Mapping[str, Any], *, watched: bool = True) -> RewardResult:
        failed = sorted(self._failed_checks)
        closed = f"check{'s' if len(failed) > 1 else ''} {', '.join(failed)} failed" if failed else None
        self._end = scoring.score(self._plan, sample, closed=closed, settle=self._voided, watched=watched)
        return self._end

    @property
    def total(self) -> RewardResult:
        """The sum of all steps and the end so far, as one result; its components are summed as well."""
        return summed([*self._steps, *([] if self._end is None else [self._end])])

    def _capped(self, result: RewardResult) -> RewardResult:
        """Clip a step's reward to `step_total`; a floor is not clipped."""
        bounds = self._plan.step_total
        if bounds is None or result.value is None or result.status != "ok" or result.failed_checks:
            return result
        before, unclipped = self._step_sum, self._step_sum + result.value
        self._step_sum = min(max(unclipped, bounds[0]), bounds[1])
        if self._step_sum == unclipped:
            return result
        return replace(result, value=self._step_sum - before, clipped=True)

    def _voided(self, result: RewardResult) -> RewardResult:
        """Set the end's reward to the floor if a check failed in a step."""
        if not self._failed_checks:
            return result
        checks = tuple(sorted({*result.failed_checks, *self._failed_checks}))
        floored = {"value": self._plan.floor, "status": "ok", "verdict": "fail", "clipped": False}
        return replace(result, failed_checks=checks, **floored)  # type: ignore[arg-type]  # fields of it


def summed(results: Sequence[RewardResult]) -> RewardResult:
    """Return several results of one episode as one, with the sum of values, also of each component."""
    last = results[-1]
    verdicts = [result.verdict for result in results]
    checks = tuple(sorted({check for result in results for check in result.failed_checks}))
    errors = list(dict.fromkeys(result.error for result in results if result.error))
    grades: dict[str, list[Grade]] = {}
    for result in results:
        for name, grade in result.components.items():
            grades.setdefault(name, []).append(grade)
    return replace(
        last,
        value=_sum(result.value for result in results),
        status=_worst(result.status for result in results),
        verdict="fail" if "fail" in verdicts else last.verdict,
        failed_checks=checks,
        components={name: _added(step_grades) for name, step_grades in grades.items()},
        error="; ".join(errors)[:_LONGEST] or None,
        error_type=next((result.error_type for result in results if result.error_type), None),
        range=None,
        clipped=any(result.clipped for result in results),
        start_time=results[0].start_time,
        span_id="",
    )


def _added(grades: Sequence[Grade]) -> Grade:
    """Return the grades of one component in several results as one."""
    if len(grades) == 1:
        return grades[0]
    verdicts = {grade.verdict for grade in grades}
    failed = next((grade for grade in grades if grade.status == "error"), grades[-1])
    decided = grades[0].kind in ("check", "verifier")
    values = [grade.value for grade in grades]
    return replace(
        failed,
        value=min((value for value in values if value is not None), default=None)
        if decided
        else _sum(values),
        status=_worst(grade.status for grade in grades),
        contribution=_sum(grade.contribution for grade in grades),
        verdict="fail" if "fail" in verdicts else None if None in verdicts else "pass",
        clipped=any(grade.clipped for grade in grades),
        late=any(grade.late for grade in grades),
        range=grades[0].range if decided else None,
        parts=(),
        start_time=grades[0].start_time,
        end_time=grades[-1].end_time,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if a value is None."""
    amounts = list(values)
    known = [value for value in amounts if value is not None]
    return fsum(known) if len(known) == len(amounts) else None


def _worst(statuses: Iterable[str]) -> str:
    distinct = set(statuses)
    return next((status for status in _STATUSES if status in distinct), "ok")
