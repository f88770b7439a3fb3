"""One episode while it is scored: its steps one by one, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any

from mttp.model.episodes import Grade
from mttp.model.results import RewardResult
from mttp.rewards import scoring
from mttp.rewards.plan import ScoringPlan

__all__ = ["EpisodeScorer", "in_all"]

_LONGEST = 2000
_KEPT = 1000
"""Steps after which only what they come to is kept."""
_STATUSES = ("error", "abstained", "missing", "partial")


class EpisodeScorer:
    """
    One episode while it is scored by a spec: `step` for each step, then `end`.

    The sum of its steps stays within the spec's `step_total`: a step that would go beyond pays what is left.
    A check that failed in a step gives that step the floor, and the end too.
    """

    def __init__(self, plan: ScoringPlan) -> None:
        self._plan = plan
        self._paid = 0.0
        self._broken: set[str] = set()
        self._steps: list[RewardResult] = []
        self._end: RewardResult | None = None

    def step(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """What the next step is paid, by the components whose scope is a step."""
        return self._step({**(sample or {}), **inputs})

    def end(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """What the episode's end is paid, by the terminal components."""
        return self._finish({**(sample or {}), **inputs})

    def last(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """What the last step and the end are paid together, as one; nothing of it is recorded yet."""
        given = {**(sample or {}), **inputs}
        return in_all([self._step(given, watched=False), self._finish(given, watched=False)])

    def _step(self, sample: Mapping[str, Any], *, watched: bool = True) -> RewardResult:
        result = scoring.score_step(self._plan, sample, settle=self._capped, watched=watched)
        self._broken.update(result.failed_checks)
        self._steps.append(result)
        if len(self._steps) == _KEPT:
            self._steps = [in_all(self._steps)]
        return result

    def _finish(self, sample: Mapping[str, Any], *, watched: bool = True) -> RewardResult:
        broken = sorted(self._broken)
        closed = f"check{'s' if len(broken) > 1 else ''} {', '.join(broken)} failed" if broken else None
        self._end = scoring.score(self._plan, sample, closed=closed, settle=self._voided, watched=watched)
        return self._end

    @property
    def total(self) -> RewardResult:
        """What the episode was paid so far: values, and those of each component, added up."""
        return in_all([*self._steps, *([] if self._end is None else [self._end])])

    def _capped(self, result: RewardResult) -> RewardResult:
        """A step's reward within what is left; a floor is paid in full."""
        bounds = self._plan.step_total
        if bounds is None or result.value is None or result.status != "ok" or result.failed_checks:
            return result
        before, wanted = self._paid, self._paid + result.value
        self._paid = min(max(wanted, bounds[0]), bounds[1])
        if self._paid == wanted:
            return result
        return replace(result, value=self._paid - before, clipped=True)

    def _voided(self, result: RewardResult) -> RewardResult:
        if not self._broken:
            return result
        checks = tuple(sorted({*result.failed_checks, *self._broken}))
        floored = {"value": self._plan.floor, "status": "ok", "verdict": "fail", "clipped": False}
        return replace(result, failed_checks=checks, **floored)  # type: ignore[arg-type]  # fields of it


def in_all(results: Sequence[RewardResult]) -> RewardResult:
    """Several scorings of one episode as one: values added up, of each component as well."""
    last = results[-1]
    verdicts = [one.verdict for one in results]
    checks = tuple(sorted({check for one in results for check in one.failed_checks}))
    errors = list(dict.fromkeys(one.error for one in results if one.error))
    grades: dict[str, list[Grade]] = {}
    for one in results:
        for name, grade in one.components.items():
            grades.setdefault(name, []).append(grade)
    return replace(
        last,
        value=_sum(one.value for one in results),
        status=_worst(one.status for one in results),
        verdict="fail" if "fail" in verdicts else last.verdict,
        failed_checks=checks,
        components={name: _added(found) for name, found in grades.items()},
        error="; ".join(errors)[:_LONGEST] or None,
        error_type=next((one.error_type for one in results if one.error_type), None),
        range=None,
        clipped=any(one.clipped for one in results),
        start_time=results[0].start_time,
        span_id="",
    )


def _added(grades: Sequence[Grade]) -> Grade:
    """The grades of one component in several scorings as one."""
    if len(grades) == 1:
        return grades[0]
    verdicts = {grade.verdict for grade in grades}
    failed = next((grade for grade in grades if grade.status == "error"), grades[-1])
    decided = grades[0].kind in ("check", "verifier")
    values = [grade.value for grade in grades]
    return replace(
        failed,
        value=min((one for one in values if one is not None), default=None) if decided else _sum(values),
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
    """None where one of them is."""
    found = list(values)
    known = [value for value in found if value is not None]
    return fsum(known) if len(known) == len(found) else None


def _worst(statuses: Iterable[str]) -> str:
    found = set(statuses)
    return next((status for status in _STATUSES if status in found), "ok")
