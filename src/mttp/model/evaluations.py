"""Evaluations and the results of their tasks as frozen values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any

from mttp.errors import MissingExtra
from mttp.model.estimates import (
    INSTALL_SCIPY,
    PassEstimate,
    TimeQuantiles,
    mean,
    pass_estimates,
    sample_sizes,
    standard_error,
    time_quantiles,
)
from mttp.model.scorings import Spec
from mttp.model.values import Value
from mttp.semconv import attributes as a

__all__ = ["FAILED", "OTHER_ERROR", "OUTCOMES", "EvalSummary", "Evaluation", "TaskResult"]

OUTCOMES = ("scored", "abstained", "skipped", "errored", "timed_out")
"""The possible outcomes of a sample of a task."""
FAILED = ("errored", "timed_out")
"""The outcomes of a sample that ran and could not be scored."""
OTHER_ERROR = "_OTHER"
"""OpenTelemetry's error type for an error without a known type."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TaskResult(Value):
    """The result of one sample of a task in an evaluation; `OpenEvaluation.result` and `map` return these."""

    task: Annotated[str, a.TASK_ID]
    """The task's id."""
    sample: int = 0
    """The index of the sample, from 0."""
    outcome: Annotated[str, a.EVAL_OUTCOME] = "scored"
    """scored, abstained, skipped, errored or timed_out."""
    score: Annotated[float | None, a.GEN_AI_EVALUATION_SCORE_VALUE] = None
    """The score, a finite number; None unless the outcome is scored."""
    passed: bool | None = None
    """The verdict; None without one."""
    baseline_score: Annotated[float | None, a.EVAL_BASELINE_SCORE] = None
    """The baseline's score of the task, the mean of its samples; None without one."""
    delta: Annotated[float | None, a.EVAL_DELTA] = None
    """`score` minus `baseline_score`; None without both."""
    duration: Annotated[float | None, a.EVAL_DURATION] = None
    """The duration in seconds; None if unknown."""
    error: Annotated[str | None, a.EVAL_ERROR] = None
    """The reason for a missing score."""
    error_type: str | None = None
    """The class of the exception, or a word such as `invalid_value`."""
    slices: Annotated[tuple[str, ...], a.TASK_SLICES] = ()
    """The names of the subsets that the task belongs to."""
    episode: Annotated[str, a.EVAL_EPISODE_TRACE_ID] = ""
    """The trace id of the task's episode, 32 hex digits; empty if unknown."""
    revision: Annotated[int, a.EVAL_REVISION] = 0
    """The result with the highest revision counts; by default nanoseconds since the Unix epoch."""
    faults: Annotated[tuple[str, ...], a.FAULTS] = ()
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
    """Counts, scores and pass rates of an evaluation, by its current results: one per task and sample."""

    tasks: int = 0
    """The number of tasks: planned ones, and others with a result."""
    samples: int = 1
    """The planned number of samples per task."""
    scored: int = 0
    """The number of results with a score."""
    abstained: int = 0
    """The number of results in which the policy or the grader abstained."""
    skipped: int = 0
    """The number of skipped samples."""
    errored: int = 0
    """The number of samples that failed before they were scored."""
    timed_out: int = 0
    """The number of samples that exceeded their time limit."""
    pending: int = 0
    """The number of planned samples without a result."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """The number of errored results by error type; `_OTHER` for an error without a type."""
    extra: tuple[str, ...] = ()
    """The tasks with a result that were not planned."""
    mean: Annotated[float | None, a.GEN_AI_EVALUATION_SCORE_VALUE] = None
    """Mean over tasks of the mean score of their samples; None without scores."""
    judged: int = 0
    """The number of scored results with a verdict."""
    judged_tasks: int = 0
    """The number of tasks with such a result."""
    passed: int = 0
    """The number of results with a verdict that passed."""
    pass_rate: Annotated[float | None, a.EVAL_PASS_RATE] = None
    """Mean over these tasks of the share of their samples that passed, from 0 to 1: pass@1."""
    pass_error: float | None = None
    """Standard error of the pass rate; None for fewer than two tasks."""
    pass_estimates: tuple[PassEstimate, ...] = ()
    """pass@k and pass^k; by default only if there are several samples per task."""
    compared: int = 0
    """The number of tasks with a score and a baseline."""
    baseline_failed: int | None = None
    """The number of failed results in the baseline, over the tasks of both; None if unknown."""
    baseline_mean: Annotated[float | None, a.EVAL_BASELINE_SCORE] = None
    """Mean of the baseline's scores over the compared tasks; None without any."""
    delta: Annotated[float | None, a.EVAL_DELTA] = None
    """Mean over the compared tasks of their mean score minus the baseline's."""
    delta_error: float | None = None
    """Standard error of the delta; None for fewer than two tasks."""
    delta_interval: tuple[float, float] | None = None
    """
    The 95 % interval of the delta, as `mttp.compare` computes it; None where the scores support none.

    The samples of a task count as one difference.
    """
    delta_p: float | None = None
    """The two-sided p value of the delta."""
    delta_method: str | None = None
    """The method of the interval and of the p value."""
    comparison: str | None = None
    """better or worse if `mttp.compare` says so, else inconclusive; None without a delta."""
    comparison_reason: str | None = None
    """Why there is no interval or no verdict, such as missing scores that could change it."""
    higher: int = 0
    """The number of compared tasks with a score above the baseline's."""
    lower: int = 0
    """The number of compared tasks with a score below the baseline's."""
    duration: float = 0.0
    """The sum of the results' known durations, in seconds."""
    first_token_time: TimeQuantiles | None = None
    """Seconds to the first chunk of the policy's model calls; None if not recorded."""
    output_token_time: TimeQuantiles | None = None
    """Seconds per output token after the first chunk; None if not recorded."""

    @property
    def results(self) -> int:
        """The number of results including the pending ones."""
        return sum(getattr(self, name) for name in (*OUTCOMES, "pending"))

    @property
    def coverage(self) -> float | None:
        """
        The share of scored results among the scored and the abstained ones, from 0 to 1; None without any.

        The pass rate is the selective accuracy at this coverage.
        """
        answered = self.scored + self.abstained
        return self.scored / answered if answered else None

    @property
    def bias(self) -> str | None:
        """A warning that failed results may bias the delta; None without failed results or a delta."""
        here, there = self.errored + self.timed_out, self.baseline_failed
        if self.delta is None or not (here or there):
            return None
        return f"errors may bias it: {here} here, {'unknown' if there is None else there} in the baseline"

    def __str__(self) -> str:
        """Return `text`, and `delta_text` on a second line if there is a delta."""
        return self.text() if self.delta is None else f"{self.text()}\n{self.delta_text()}"

    def text(self) -> str:
        """Return the number of tasks, the outcomes, and the statistics except the delta, as one line."""
        counts = {name: getattr(self, name) for name in (*OUTCOMES, "pending")}
        parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        parts += _figure("mean", self.mean, self.scored, self.results)
        parts += _figure("pass rate", self.pass_rate, self.judged, self.results)
        if self.abstained:
            parts += _figure("coverage", self.coverage, self.scored, self.scored + self.abstained)
        for estimate in (estimate for estimate in self.pass_estimates if estimate.k > 1):
            parts += _figure(f"pass@{estimate.k}", estimate.pass_at_k, estimate.tasks, self.tasks)
            parts += _figure(f"pass^{estimate.k}", estimate.pass_hat_k, estimate.tasks, self.tasks)
        tasks = f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
        tasks += f" of {self.samples} samples" if self.samples > 1 else ""
        return f"{tasks}: {', '.join(parts) or 'nothing to do'}"

    def delta_text(self) -> str:
        """Return the delta, its interval and method, and the number of compared tasks, as one line."""
        if self.delta is None:
            return "nothing is compared"
        interval = self.delta_interval
        text = f"delta {self.delta:+.4g}"
        if interval is not None:
            text += f" [{interval[0]:+.4g}, {interval[1]:+.4g}]"
        text += f": {self.comparison}, {self.compared} of {self.tasks} tasks compared"
        text += f", {self.higher} higher and {self.lower} lower ({self._method()})"
        return text if self.bias is None else f"{text}; {self.bias}"

    def _method(self) -> str:
        """Return the method of the delta's interval, the reason for its absence, and that for no verdict."""
        if self.delta_interval is None:
            return (
                "no interval for one task" if self.compared < 2 else self.comparison_reason or "no interval"
            )
        p_value = "" if self.delta_p is None else f", p = {self.delta_p:.2g}"
        reason = "" if self.comparison_reason is None else f"; {self.comparison_reason}"
        return f"{self.delta_method}{p_value}{reason}"


def _figure(name: str, value: float | None, count: int, total: int) -> list[str]:
    """Return a statistic as text, with its count if that is below the total; empty for None."""
    if value is None:
        return []
    return [f"{name} {value:.4g}" + (f" ({count} of {total})" if count < total else "")]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation(Value):
    """An evaluation of a policy on a suite of tasks."""

    id: Annotated[str, a.EVAL_ID] = ""
    """The evaluation's id, shared by all processes that work on it."""
    suite: Annotated[str, a.EVAL_SUITE_NAME] = ""
    """The suite's name."""
    suite_version: Annotated[str | None, a.EVAL_SUITE_VERSION] = None
    """The suite's version."""
    run_id: Annotated[str, a.RUN_ID] = ""
    """The id of the last run that worked on the evaluation."""
    run_name: Annotated[str | None, a.RUN_NAME] = None
    """The name of that run."""
    tasks: Annotated[tuple[str, ...], a.EVAL_TASKS] = ()
    """Ids of the planned tasks; empty if they were not stated."""
    samples: Annotated[int, a.EVAL_SAMPLES] = 1
    """The planned number of samples per task."""
    is_baseline: Annotated[bool, a.EVAL_IS_BASELINE] = False
    """Whether the evaluation is a baseline for others."""
    baseline_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of the baseline's results by outcome, over the tasks of both."""
    baseline_samples: Mapping[str, Sequence[float | None]] = field(default_factory=dict, compare=False)
    """The baseline's scores by task, one for each sample, None for one without a score; not recorded."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags for finding the evaluation."""
    spec: Spec | None = None
    """The reward spec that scores."""
    policy: Annotated[str | None, a.POLICY_ID] = None
    """The policy's id."""
    policy_version: Annotated[str | None, a.POLICY_VERSION_START] = None
    """The policy's version."""
    status: Annotated[str, a.EVAL_STATUS] = "unfinished"
    """completed, aborted or error; unfinished if the end is not in the recording."""
    error_type: str | None = None
    """The class of the exception that ended the evaluation."""
    error_message: str | None = None
    """The message of that exception."""
    results: tuple[TaskResult, ...] = ()
    """All results in the order of recording, including those that a later one replaces."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """User-supplied numbers by name."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """User-supplied values by name."""
    faults: tuple[str, ...] = ()
    """Faults in the recorded values, as `kind: detail`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that this version does not know."""
    trace_ids: tuple[str, ...] = field(default=(), compare=False)
    """The trace ids in order of start, one per process that worked on the evaluation."""
    start_time: int | None = field(default=None, compare=False)
    """The start, in nanoseconds since the Unix epoch."""
    end_time: int | None = field(default=None, compare=False)
    """The end, in nanoseconds since the Unix epoch; None while unfinished."""

    def latest(self) -> dict[tuple[str, int], TaskResult]:
        """Return the current result by task and sample, in the order of `tasks`, then of the results."""
        latest = {result.key: result for result in sorted(self.results, key=lambda result: result.order)}
        places: dict[str, int] = {}
        for task in (*self.tasks, *(task for task, _ in latest)):
            places.setdefault(task, len(places))
        return dict(sorted(latest.items(), key=lambda item: (places[item[0][0]], item[0][1])))

    def scores(self) -> dict[str, float]:
        """Return the mean score of each task's samples; without tasks that have no score."""
        means = {task: mean(result.score for result in results) for task, results in self._by_task()}
        return {task: score for task, score in means.items() if score is not None}

    def against(self, baseline: Evaluation | Mapping[str, float]) -> Evaluation:
        """Return the evaluation with each result compared with a baseline; replaces an earlier comparison."""
        scores = baseline.scores() if isinstance(baseline, Evaluation) else baseline
        results = tuple(result.against(scores.get(result.task)) for result in self.results)
        return replace(self, results=results).with_baseline(baseline)

    def with_baseline(self, baseline: Evaluation | Mapping[str, float]) -> Evaluation:
        """Return the evaluation with the counts and the scores of a baseline, for its summary."""
        if isinstance(baseline, Evaluation):
            samples = {task: [result.score for result in results] for task, results in baseline._by_task()}
        else:
            samples = {task: [score] for task, score in baseline.items()}
        return replace(self, baseline_counts=self.counted(baseline), baseline_samples=samples)

    def counted(self, baseline: Evaluation | Mapping[str, float]) -> dict[str, int]:
        """Return a baseline's number of results by outcome, over common tasks; empty for plain scores."""
        known = {*self.tasks} or {result.task for result in self.results}
        if not isinstance(baseline, Evaluation):
            return {}
        latest = baseline.latest().values()
        return dict(Counter(result.outcome for result in latest if result.task in known or not known))

    def summary(self, *, sizes: Sequence[int] = ()) -> EvalSummary:
        """
        Return the counts and statistics of the current results.

        pass@k and pass^k are estimated for each k in `sizes`; by default, if there are several samples per
        task, for 1, 2, 4 and so on, and the number of samples.
        """
        by_task = self._by_task()
        results = [result for _, of_task in by_task for result in of_task]
        counts = Counter(result.outcome for result in results)
        verdicts = [
            [result.passed for result in of_task if result.score is not None and result.passed is not None]
            for _, of_task in by_task
        ]
        passes = [(len(judged), sum(judged)) for judged in verdicts if judged]
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
            mean=mean(mean(result.score for result in of_task) for _, of_task in by_task),
            judged=sum(judged for judged, _ in passes),
            judged_tasks=len(passes),
            passed=sum(passed for _, passed in passes),
            pass_rate=mean(rates),
            pass_error=standard_error(rates),
            pass_estimates=pass_estimates(passes, sizes),
            **self._comparison(by_task),
            duration=sum(result.duration or 0.0 for result in results),
            first_token_time=time_quantiles(t for result in results for t in result.first_token_times),
            output_token_time=time_quantiles(t for result in results for t in result.output_token_times),
        )

    def by_slice(self, *, sizes: Sequence[int] = ()) -> dict[str, EvalSummary]:
        """Return the summary of each slice's tasks; a task in several slices counts in each."""
        tasks: dict[str, dict[str, list[TaskResult]]] = {}
        for result in self.latest().values():
            for name in result.slices:
                tasks.setdefault(name, {}).setdefault(result.task, []).append(result)
        parts = {
            name: replace(self, tasks=tuple(of_task), results=tuple(r for of in of_task.values() for r in of))
            for name, of_task in tasks.items()
        }
        return {name: replace(part, baseline_counts={}).summary(sizes=sizes) for name, part in parts.items()}

    def _by_task(self) -> list[tuple[str, list[TaskResult]]]:
        """Return the current results of each task that has results."""
        return [(task, list(rows)) for task, rows in groupby(self.latest().values(), lambda row: row.task)]

    def _tasks(self, by_task: Sequence[tuple[str, Sequence[TaskResult]]]) -> dict[str, Any]:
        """Return the fields of the summary about planned, pending and extra tasks."""
        known = {*self.tasks}
        finished = sum(result.sample < self.samples for task, of in by_task for result in of if task in known)
        return {
            "tasks": len(known.union(task for task, _ in by_task)),
            "samples": self.samples,
            "pending": len(known) * self.samples - finished,
            "extra": tuple(task for task, _ in by_task if task not in known) if known else (),
        }

    def _comparison(self, by_task: Sequence[tuple[str, Sequence[TaskResult]]]) -> dict[str, Any]:
        """Return the fields of the summary about the baseline; each task is one difference."""
        pairs = [pair for _, of_task in by_task if (pair := _pair(of_task)) is not None]
        if not pairs:
            return {}
        deltas = [score - baseline for score, baseline in pairs]
        failed = sum(self.baseline_counts.get(name, 0) for name in FAILED) if self.baseline_counts else None
        return {
            "compared": len(deltas),
            "baseline_failed": failed,
            "baseline_mean": mean(baseline for _, baseline in pairs),
            "delta": mean(deltas),
            "delta_error": standard_error(deltas),
            "higher": sum(delta > 0 for delta in deltas),
            "lower": sum(delta < 0 for delta in deltas),
            "comparison": "inconclusive",
            **self._tested(by_task),
        }

    def _tested(self, by_task: Sequence[tuple[str, Sequence[TaskResult]]]) -> dict[str, Any]:
        """Return the fields about the interval and the verdict, which are those of `mttp.compare`."""
        unplaced = ""
        base = self.baseline_samples
        if not base:  # read from the recording, which has the means of the tasks
            base = {task: [of_task[0].baseline_score] for task, of_task in by_task}
            missing = sum(count for outcome, count in self.baseline_counts.items() if outcome != "scored")
            unknown = sum(scores == [None] for scores in base.values())
            if missing != unknown * self.samples:
                base = {task: scores for task, scores in base.items() if scores != [None]}
                unplaced = (
                    f"{missing:,} results of the baseline are missing, of unknown tasks" if missing else ""
                )
        from mttp.model.statistics.scores import compare_scores  # numpy, which recording does without

        here = {task: [result.score for result in of_task] for task, of_task in by_task}
        try:
            compared = compare_scores(base, here)
        except MissingExtra:
            return {"comparison_reason": f"no interval without scipy: {INSTALL_SCIPY}"}
        if compared.verdict == "inconclusive":
            unplaced = ""
        if compared.effect is None or not math.isfinite(compared.effect):
            return {"comparison_reason": "no interval: the differences are too large"}
        return {
            "baseline_mean": compared.base,
            "delta": compared.effect,
            "delta_interval": compared.interval,
            "delta_p": compared.p_value,
            "delta_method": compared.method,
            "comparison": "inconclusive" if unplaced else compared.verdict,
            "comparison_reason": unplaced or compared.reason,
        }


def _pair(results: Iterable[TaskResult]) -> tuple[float, float] | None:
    """Return a task's mean score and its baseline's; None if one is unknown or the difference overflows."""
    both = [result for result in results if result.score is not None and result.baseline_score is not None]
    score, baseline = mean(result.score for result in both), mean(result.baseline_score for result in both)
    if score is None or baseline is None or not math.isfinite(score - baseline):
        return None
    return score, baseline


def _error_types(results: Iterable[TaskResult]) -> dict[str, int]:
    """Return the number of errored results by error type, most frequent first."""
    counts = Counter(result.error_type or OTHER_ERROR for result in results if result.outcome == "errored")
    return dict(counts.most_common())
