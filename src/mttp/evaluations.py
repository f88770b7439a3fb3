"""Evaluations and the results of their tasks as frozen values: no I/O, no attribute names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mttp.scorings import Spec
from mttp.values import Value

__all__ = ["OUTCOMES", "EvalSummary", "Evaluation", "TaskResult", "summarized"]

OUTCOMES = ("scored", "skipped", "errored", "timed_out")
"""What can become of a task."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TaskResult(Value):
    """What became of one task of an evaluation."""

    task: str
    """The task's id."""
    outcome: str = "scored"
    """scored, skipped, errored or timed_out."""
    score: float | None = None
    """How well it was done; None unless the outcome is scored: an error is never a zero."""
    passed: bool | None = None
    """Whether it passed, where that was decided."""
    baseline_score: float | None = None
    """What the evaluation that is compared with scored."""
    delta: float | None = None
    """score less baseline_score."""
    duration: float | None = None
    """Seconds that it took."""
    error: str | None = None
    """Why there is no score."""
    error_type: str | None = None
    """Class of the exception, where one was the reason."""
    slices: tuple[str, ...] = ()
    """Named subsets that the task belongs to."""
    episode: str = ""
    """Trace id of the episode in which it was done, where that is known."""
    revision: int = 0
    """Of one task's results the one with the highest counts; by default nanoseconds since 1970."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was stated, `kind: detail` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The evaluation's trace, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """The result's span, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """When the task was begun."""
    end_time: int | None = field(default=None, compare=False)
    """When the result was stated."""

    @property
    def order(self) -> tuple[int, int, str]:
        """By what the result that counts is found: revision, then end, then span id; the highest wins."""
        return self.revision, self.end_time or 0, self.span_id

    def against(self, baseline_score: float | None) -> TaskResult:
        """The same, compared with that score."""
        if baseline_score is None or self.score is None:
            return replace(self, baseline_score=baseline_score, delta=None)
        delta = self.score - baseline_score
        known = math.isfinite(delta)
        return replace(self, baseline_score=baseline_score, delta=delta if known else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSummary:
    """What an evaluation amounts to, by the result that counts of each task."""

    tasks: int = 0
    """How many there are: those that were to be done, and others that have a result."""
    scored: int = 0
    """How many were scored."""
    skipped: int = 0
    """How many were not done, on purpose."""
    errored: int = 0
    """How many failed before they could be scored."""
    timed_out: int = 0
    """How many were stopped at their time limit."""
    pending: int = 0
    """How many have no result."""
    extra: tuple[str, ...] = ()
    """Those that have a result and were not to be done."""
    mean: float | None = None
    """Mean of the scores; None where nothing was scored."""
    judged: int = 0
    """How many of the scored say whether they passed."""
    passed: int = 0
    """How many of these did."""
    compared: int = 0
    """How many were scored and have a baseline."""
    baseline_mean: float | None = None
    """Mean of the baseline over these; None where there are none."""
    delta: float | None = None
    """Mean of score less baseline over these."""
    better: int = 0
    """How many of these are above their baseline."""
    worse: int = 0
    """How many are below it."""
    duration: float = 0.0
    """Seconds that all tasks took together, as far as it is known."""

    @property
    def pass_rate(self) -> float | None:
        """Share that passed, from 0 to 1, of those scored that say whether they did; None where none does."""
        return self.passed / self.judged if self.judged else None

    def __str__(self) -> str:
        """Each outcome that there is, and the figures."""
        counts = {name: getattr(self, name) for name in (*OUTCOMES, "pending")}
        parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        figures = {"mean": self.mean, "pass rate": self.pass_rate}
        parts += [f"{name} {value:.4g}" for name, value in figures.items() if value is not None]
        parts += [] if self.delta is None else [f"delta {self.delta:+.4g}"]
        return f"{self.tasks} task{'' if self.tasks == 1 else 's'}: {', '.join(parts) or 'nothing to do'}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation(Value):
    """One evaluation of a policy on a suite of tasks."""

    id: str = ""
    """Its identity; the same where another process went on with it."""
    suite: str = ""
    """The suite's name."""
    suite_version: str | None = None
    """The suite's version."""
    run_id: str = ""
    """The run that it belongs to; of several, the last that went on with it."""
    run_name: str | None = None
    """That run's name."""
    tasks: tuple[str, ...] = ()
    """Ids of the tasks that are to be done; empty where nobody said."""
    is_baseline: bool = False
    """Whether others are to be compared with it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Facts by which it is found again."""
    spec: Spec | None = None
    """The reward spec that scores."""
    policy: str | None = None
    """The policy's id."""
    policy_version: str | None = None
    """The policy's version."""
    status: str = "unfinished"
    """completed, aborted or error; unfinished where the end is not in the recording."""
    error_type: str | None = None
    """Class of the exception that ended it."""
    error_message: str | None = None
    """That exception's message."""
    results: tuple[TaskResult, ...] = ()
    """All results in the order in which they were stated, those included that a later one replaces."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's own facts by name."""
    faults: tuple[str, ...] = ()
    """What was wrong with what was recorded, `kind: detail` each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_ids: tuple[str, ...] = field(default=(), compare=False)
    """Its traces in order of start: one per process that went on with it."""
    start_time: int | None = field(default=None, compare=False)
    """When it began."""
    end_time: int | None = field(default=None, compare=False)
    """When it ended; None while unfinished."""

    def latest(self) -> dict[str, TaskResult]:
        """The result that counts of each task, in the order of `tasks`, then of the results."""
        found: dict[str, TaskResult] = {}
        for result in sorted(self.results, key=lambda result: result.order):
            found[result.task] = result
        places = {task: place for place, task in enumerate(self.tasks)}
        return dict(sorted(found.items(), key=lambda item: places.get(item[0], len(places))))

    def scores(self) -> dict[str, float]:
        """The scores by task; those that have none are left out."""
        return {task: found.score for task, found in self.latest().items() if found.score is not None}

    def against(self, baseline: Mapping[str, float]) -> Evaluation:
        """The same with each result compared with the baseline's score of its task, and with no other."""
        return replace(self, results=tuple(found.against(baseline.get(found.task)) for found in self.results))

    def summary(self) -> EvalSummary:
        """What it amounts to."""
        return summarized(self.tasks, self.latest().values())


def summarized(tasks: Sequence[str], results: Iterable[TaskResult]) -> EvalSummary:
    """What the results, one per task, amount to; `tasks` are those that were to be done."""
    by_task = {result.task: result for result in results}
    known = {*tasks}
    counts = Counter(result.outcome for result in by_task.values())
    scores = [result for result in by_task.values() if result.score is not None]
    verdicts = [result.passed for result in scores if result.passed is not None]
    compared = [result for result in scores if result.delta is not None]
    deltas = [result.delta for result in compared if result.delta is not None]
    return EvalSummary(
        tasks=len(known | by_task.keys()),
        **{name: counts[name] for name in OUTCOMES},
        pending=len(known - by_task.keys()),
        extra=tuple(task for task in by_task if task not in known) if known else (),
        mean=_mean(result.score for result in scores),
        judged=len(verdicts),
        passed=sum(verdicts),
        compared=len(compared),
        baseline_mean=_mean(result.baseline_score for result in compared),
        delta=_mean(deltas),
        better=sum(delta > 0 for delta in deltas),
        worse=sum(delta < 0 for delta in deltas),
        duration=sum(result.duration or 0.0 for result in by_task.values()),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    try:
        return math.fsum(known) / len(known) if known else None
    except OverflowError:
        return math.fsum(value / len(known) for value in known)
