"""Evaluations and the results of their tasks as frozen values: no I/O, no attribute names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from mttp.model.estimates import (
    FEWEST_EQUAL,
    INSTALL_SCIPY,
    PassEstimate,
    TimeQuantiles,
    mean,
    pass_estimates,
    sample_sizes,
    standard_error,
    t_interval,
    time_quantiles,
)
from mttp.model.scorings import Spec
from mttp.model.values import Value

__all__ = ["DELTA_INTERVAL", "FAILED", "OTHER_ERROR", "OUTCOMES", "EvalSummary", "Evaluation", "TaskResult"]

OUTCOMES = ("scored", "abstained", "skipped", "errored", "timed_out")
"""What can become of a task."""
FAILED = ("errored", "timed_out")
"""The outcomes of a task that was run and could not be scored."""
DELTA_INTERVAL = "Student t, 95 %, paired by task"
"""How the interval of a delta is made."""
OTHER_ERROR = "_OTHER"
"""The error type of an error that was only stated in words, as OpenTelemetry names it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TaskResult(Value):
    """The result of one sample of a task in an evaluation; `OpenEvaluation.result` and `map` return these."""

    task: str
    """The task's id."""
    sample: int = 0
    """The index of the sample, from 0."""
    outcome: str = "scored"
    """scored, abstained, skipped, errored or timed_out."""
    score: float | None = None
    """The score, a finite number; None unless the outcome is scored."""
    passed: bool | None = None
    """The verdict; None without one."""
    baseline_score: float | None = None
    """The baseline's score of the task, the mean of its samples; None without one."""
    delta: float | None = None
    """`score` minus `baseline_score`; None without both."""
    duration: float | None = None
    """The duration in seconds; None if unknown."""
    error: str | None = None
    """The reason for a missing score."""
    error_type: str | None = None
    """The class of the exception, or a word such as `invalid_value`."""
    slices: tuple[str, ...] = ()
    """The names of the subsets that the task belongs to."""
    episode: str = ""
    """The trace id of the task's episode, 32 hex digits; empty if unknown."""
    revision: int = 0
    """The result with the highest revision counts; by default nanoseconds since the Unix epoch."""
    faults: tuple[str, ...] = ()
    """Faults in the arguments of the result, as `kind: detail`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_id: str = field(default="", compare=False)
    """The trace id of the evaluation, 32 hex digits."""
    span_id: str = field(default="", compare=False)
    """The span id of the result, 16 hex digits."""
    start_time: int | None = field(default=None, compare=False)
    """The start of the task, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The time of the result, in nanoseconds since the Unix epoch."""
    first_token_times: tuple[float, ...] = field(default=(), compare=False)
    """Seconds to the first chunk of each model call of the policy in the episode, if recorded."""
    output_token_times: tuple[float, ...] = field(default=(), compare=False)
    """Seconds per output token after the first chunk of each of these calls."""

    @property
    def key(self) -> tuple[str, int]:
        """The task and the sample; the last result with a key counts."""
        return self.task, self.sample

    @property
    def order(self) -> tuple[int, int, str]:
        """Revision, end time and span id; the result with the highest order counts."""
        return self.revision, self.end_time or 0, self.span_id

    def against(self, baseline_score: float | None) -> TaskResult:
        """Return the result with a baseline's score and the delta to it."""
        if baseline_score is None or self.score is None:
            return replace(self, baseline_score=baseline_score, delta=None)
        delta = self.score - baseline_score
        known = math.isfinite(delta)
        return replace(self, baseline_score=baseline_score, delta=delta if known else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSummary:
    """What an evaluation amounts to, by the results that count: one per task and sample."""

    tasks: int = 0
    """How many there are: those that were to be done, and others that have a result."""
    samples: int = 1
    """How many samples of each task were to be taken."""
    scored: int = 0
    """How many results have a score."""
    abstained: int = 0
    """How many have none because the policy gave no answer, or the grader no score, on purpose."""
    skipped: int = 0
    """How many were not done, on purpose."""
    errored: int = 0
    """How many failed before they could be scored."""
    timed_out: int = 0
    """How many were stopped at their time limit."""
    pending: int = 0
    """How many samples of tasks have no result."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """How many of the errored have each error type; `_OTHER` where only a text was given."""
    extra: tuple[str, ...] = ()
    """Those that have a result and were not to be done."""
    mean: float | None = None
    """Mean over the tasks of the mean score of their samples; None where nothing was scored."""
    judged: int = 0
    """How many of the scored say whether they passed."""
    judged_tasks: int = 0
    """How many tasks these are of."""
    passed: int = 0
    """How many of these did."""
    pass_rate: float | None = None
    """Mean over these tasks of the share of their samples that passed, from 0 to 1: pass@1."""
    pass_error: float | None = None
    """Standard error of the pass rate; None for fewer than two tasks."""
    pass_estimates: tuple[PassEstimate, ...] = ()
    """pass@k and pass^k; by default for several samples only."""
    compared: int = 0
    """How many tasks have a score and a baseline."""
    baseline_failed: int | None = None
    """How many results of the baseline, for the tasks that both have, failed; None where that is unknown."""
    baseline_mean: float | None = None
    """Mean of the baseline over the compared tasks; None where there are none."""
    delta: float | None = None
    """Mean over the compared tasks of their mean score less the baseline's."""
    delta_error: float | None = None
    """Standard error of that mean; None for fewer than two tasks."""
    higher: int = 0
    """How many of the compared tasks are above their baseline."""
    lower: int = 0
    """How many are below it."""
    duration: float = 0.0
    """Seconds that all results took together, as far as it is known."""
    first_token_time: TimeQuantiles | None = None
    """Seconds until the first piece of the policy's answers, where calls say it."""
    output_token_time: TimeQuantiles | None = None
    """Seconds per output token after the first, where calls say it."""

    @property
    def results(self) -> int:
        """How many results there should be and are: the sum of all outcomes and the pending."""
        return sum(getattr(self, name) for name in (*OUTCOMES, "pending"))

    @property
    def coverage(self) -> float | None:
        """
        Share that was answered, from 0 to 1, of those that were answered or abstained; None of none.

        The pass rate, which is of those answered, is the selective accuracy at this coverage.
        """
        answered = self.scored + self.abstained
        return self.scored / answered if answered else None

    @property
    def delta_interval(self) -> tuple[float, float] | None:
        """
        The 95 % interval of the delta, by Student's t on the differences of the compared tasks.

        Samples of one task are one difference. None for fewer than two tasks, for fewer than six that all
        differ alike, and where scipy is not installed.
        """
        return None if self.delta is None else t_interval(self.delta, self.delta_error, self.compared)

    @property
    def comparison(self) -> str | None:
        """better or worse where the interval of the delta is beyond zero, else inconclusive; None of none."""
        if self.delta is None:
            return None
        low, high = self.delta_interval or (0.0, 0.0)
        return "better" if low > 0 else "worse" if high < 0 else "inconclusive"

    @property
    def bias(self) -> str | None:
        """How many errors on either side may bias the delta; None where there are none, or no delta."""
        here, there = self.errored + self.timed_out, self.baseline_failed
        if self.delta is None or not (here or there):
            return None
        return f"errors may bias it: {here} here, {'unknown' if there is None else there} in the baseline"

    def __str__(self) -> str:
        """Each outcome that there is, and the figures; on a line below, the delta where there is one."""
        return self.text() if self.delta is None else f"{self.text()}\n{self.delta_text()}"

    def text(self) -> str:
        """Each outcome that there is, and the figures but for the delta."""
        counts = {name: getattr(self, name) for name in (*OUTCOMES, "pending")}
        parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        parts += _figure("mean", self.mean, self.scored, self.results)
        parts += _figure("pass rate", self.pass_rate, self.judged, self.results)
        if self.abstained:
            parts += _figure("coverage", self.coverage, self.scored, self.scored + self.abstained)
        for found in (one for one in self.pass_estimates if one.k > 1):
            parts += _figure(f"pass@{found.k}", found.pass_at_k, found.tasks, self.tasks)
            parts += _figure(f"pass^{found.k}", found.pass_hat_k, found.tasks, self.tasks)
        tasks = f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
        tasks += f" of {self.samples} samples" if self.samples > 1 else ""
        return f"{tasks}: {', '.join(parts) or 'nothing to do'}"

    def delta_text(self) -> str:
        """The delta in words: its interval, over how many tasks, by which method, and what that says."""
        if self.delta is None:
            return "nothing is compared"
        interval = self.delta_interval
        shown = f"delta {self.delta:+.4g}"
        if interval is not None:
            shown += f" [{interval[0]:+.4g}, {interval[1]:+.4g}]"
        shown += f": {self.comparison}, {self.compared} of {self.tasks} tasks compared"
        shown += f", {self.higher} higher and {self.lower} lower ({_method(self)})"
        return shown if self.bias is None else f"{shown}; {self.bias}"


def _figure(name: str, value: float | None, of: int, among: int) -> list[str]:
    """A mean in words; one over fewer than there are says so."""
    if value is None:
        return []
    return [f"{name} {value:.4g}" + (f" ({of} of {among})" if of < among else "")]


def _method(summary: EvalSummary) -> str:
    """How the interval of the delta is made, or why there is none."""
    if summary.delta_interval is not None:
        return DELTA_INTERVAL
    if summary.compared < 2:
        return "no interval of one task"
    if summary.delta_error is None:
        return "no interval: the differences are too large"
    if summary.delta_error == 0 and summary.compared < FEWEST_EQUAL:
        return "no interval: too few tasks, which all differ alike"
    return f"no interval without scipy: {INSTALL_SCIPY}"


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
    """Ids of the planned tasks; empty if they were not stated."""
    samples: int = 1
    """How many samples are taken of each task."""
    is_baseline: bool = False
    """Whether others are to be compared with it."""
    baseline_counts: Mapping[str, int] = field(default_factory=dict)
    """Of the baseline that it is compared with, results by outcome, for the tasks that both have."""
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

    def latest(self) -> dict[tuple[str, int], TaskResult]:
        """The result that counts of each task and sample, in the order of `tasks`, then of the results."""
        found = {result.key: result for result in sorted(self.results, key=lambda result: result.order)}
        places: dict[str, int] = {}
        for task in (*self.tasks, *(task for task, _ in found)):
            places.setdefault(task, len(places))
        return dict(sorted(found.items(), key=lambda item: (places[item[0][0]], item[0][1])))

    def scores(self) -> dict[str, float]:
        """The mean score of each task's samples; tasks without a score are left out."""
        means = {task: mean(found.score for found in results) for task, results in self._by_task()}
        return {task: score for task, score in means.items() if score is not None}

    def against(self, baseline: Evaluation | Mapping[str, float]) -> Evaluation:
        """The same with each result compared with the baseline's score of its task, and with no other."""
        scores = baseline.scores() if isinstance(baseline, Evaluation) else baseline
        results = tuple(found.against(scores.get(found.task)) for found in self.results)
        return replace(self, results=results, baseline_counts=self.counted(baseline))

    def counted(self, baseline: Evaluation | Mapping[str, float]) -> dict[str, int]:
        """A baseline's results by outcome, for the tasks that both have; of bare scores nothing is known."""
        known = {*self.tasks} or {result.task for result in self.results}
        if not isinstance(baseline, Evaluation):
            return {}
        theirs = baseline.latest().values()
        return dict(Counter(found.outcome for found in theirs if found.task in known or not known))

    def summary(self, *, sizes: Sequence[int] = ()) -> EvalSummary:
        """
        What it amounts to.

        `sizes` says for which k pass@k and pass^k are estimated; by default for 1, 2, 4 and so on up to the
        number of samples where there are several.
        """
        by_task = self._by_task()
        results = [result for _, found in by_task for result in found]
        counts = Counter(result.outcome for result in results)
        verdicts = [
            [found.passed for found in of_task if found.score is not None and found.passed is not None]
            for _, of_task in by_task
        ]
        passes = [(len(found), sum(found)) for found in verdicts if found]
        rates = [passed / judged for judged, passed in passes]
        sizes = sizes or (sample_sizes(self.samples) if self.samples > 1 else ())
        return EvalSummary(
            scored=counts["scored"],
            abstained=counts["abstained"],
            skipped=counts["skipped"],
            errored=counts["errored"],
            timed_out=counts["timed_out"],
            **self._tasks(by_task),
            errors=_error_types(results),
            mean=mean(mean(found.score for found in of_task) for _, of_task in by_task),
            judged=sum(judged for judged, _ in passes),
            judged_tasks=len(passes),
            passed=sum(passed for _, passed in passes),
            pass_rate=mean(rates),
            pass_error=standard_error(rates),
            pass_estimates=pass_estimates(passes, sizes),
            **self._comparison(by_task),
            duration=sum(result.duration or 0.0 for result in results),
            first_token_time=time_quantiles(t for found in results for t in found.first_token_times),
            output_token_time=time_quantiles(t for found in results for t in found.output_token_times),
        )

    def by_slice(self, *, sizes: Sequence[int] = ()) -> dict[str, EvalSummary]:
        """What the tasks of each slice amount to; a task in several slices counts in each."""
        tasks: dict[str, dict[str, list[TaskResult]]] = {}
        for result in self.latest().values():
            for name in result.slices:
                tasks.setdefault(name, {}).setdefault(result.task, []).append(result)
        parts = {
            name: replace(self, tasks=tuple(found), results=tuple(r for of in found.values() for r in of))
            for name, found in tasks.items()
        }
        return {name: replace(part, baseline_counts={}).summary(sizes=sizes) for name, part in parts.items()}

    def _by_task(self) -> list[tuple[str, list[TaskResult]]]:
        """The results that count of each task that has some."""
        return [(task, list(found)) for task, found in groupby(self.latest().values(), lambda one: one.task)]

    def _tasks(self, by_task: Sequence[tuple[str, Sequence[TaskResult]]]) -> dict[str, Any]:
        """How many tasks there are, and what of them is pending."""
        known = {*self.tasks}
        done = sum(found.sample < self.samples for task, of in by_task for found in of if task in known)
        return {
            "tasks": len(known.union(task for task, _ in by_task)),
            "samples": self.samples,
            "pending": len(known) * self.samples - done,
            "extra": tuple(task for task, _ in by_task if task not in known) if known else (),
        }

    def _comparison(self, by_task: Sequence[tuple[str, Sequence[TaskResult]]]) -> dict[str, Any]:
        """The differences to the baseline, one per task."""
        pairs = [pair for _, of_task in by_task if (pair := _pair(of_task)) is not None]
        deltas = [score - baseline for score, baseline in pairs]
        return {
            "compared": len(deltas),
            "baseline_failed": sum(self.baseline_counts.get(name, 0) for name in FAILED)
            if self.baseline_counts
            else None,
            "baseline_mean": mean(baseline for _, baseline in pairs),
            "delta": mean(deltas),
            "delta_error": standard_error(deltas),
            "higher": sum(delta > 0 for delta in deltas),
            "lower": sum(delta < 0 for delta in deltas),
        }


def _pair(results: Iterable[TaskResult]) -> tuple[float, float] | None:
    """A task's mean score and its baseline's; None where one is unknown, or their difference too large."""
    both = [found for found in results if found.score is not None and found.baseline_score is not None]
    score, baseline = mean(found.score for found in both), mean(found.baseline_score for found in both)
    if score is None or baseline is None or not math.isfinite(score - baseline):
        return None
    return score, baseline


def _error_types(results: Iterable[TaskResult]) -> dict[str, int]:
    """How many of the errored have each error type, the most frequent first."""
    found = Counter(result.error_type or OTHER_ERROR for result in results if result.outcome == "errored")
    return dict(found.most_common())
