"""Evaluations and the results of their tasks as tables and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from mttp.cli.rendering.figures import SHARE_INTERVAL, share_interval
from mttp.cli.rendering.graders import documents
from mttp.model.estimates import PassEstimate, TimeQuantiles, t_interval
from mttp.model.evaluations import OTHER_ERROR, OUTCOMES, EvalSummary, Evaluation, TaskResult
from mttp.model.gradings import GraderHealth
from mttp.pages.listing import Listing
from mttp.pages.words import NOTHING, count, duration, moment, number, printed, shares
from mttp.reading.jsonable import jsonable

__all__ = [
    "details",
    "document",
    "evals_table",
    "grader_documents",
    "headline",
    "slices_table",
    "tasks_table",
]

_STYLES = {"completed": "green", "error": "red", "errored": "red"}
_STYLES |= dict.fromkeys(("aborted", "unfinished", "timed_out"), "yellow")
_RIGHT = {"tasks", "sample", *OUTCOMES, "pending", "score", "baseline", "mean", "delta", "duration"}
_IMPORTANT = (
    *("evaluation", "slice", "suite", "run", "tasks", "scored", "mean", "delta", "errored", "pass rate"),
    *("status", "abstained", "timed_out", "skipped", "pending", "spec", "started"),
)
_IMPORTANT_OF_TASK = ("task", "sample", "outcome", "score", "passed", "delta", "error", "baseline", "episode")
_ID_DIGITS = 8
CLUSTERED_INTERVAL = "Student t, 95 %, clustered by task"
"""Method of the interval of a pass rate with several samples per task."""


def document(
    evaluation: Evaluation, *, graders: Sequence[GraderHealth] = (), sizes: Sequence[int] = ()
) -> dict[str, Any]:
    """
    An evaluation as plain data: its summary, that of each slice, its graders, and the results that count.

    `sizes` says for which k pass@k and pass^k are estimated.
    """
    found: dict[str, Any] = jsonable(evaluation)
    found.pop("baseline_samples", None)
    found["summary"] = _summary(evaluation.summary(sizes=sizes))
    found["slices"] = {name: _summary(of) for name, of in evaluation.by_slice(sizes=sizes).items()}
    found["graders"] = grader_documents(evaluation, graders)
    return found | {"results": jsonable(list(evaluation.latest().values()))}


def grader_documents(evaluation: Evaluation, graders: Sequence[GraderHealth]) -> list[dict[str, Any]]:
    """Return the graders of the evaluation's episodes as plain data."""
    episodes = {result.episode for result in evaluation.latest().values() if result.episode}
    return documents(graders, len(episodes))


def _summary(summary: EvalSummary) -> dict[str, Any]:
    """Return a summary as plain data, with derived figures and the method of each interval."""
    found: dict[str, Any] = jsonable(asdict(summary))
    low_high, method = _rate_interval(summary)
    return found | {
        "pass_rate_interval": _interval(low_high, method, summary.judged_tasks),
        "coverage": summary.coverage,
        "delta_interval": _interval(summary.delta_interval, summary.delta_method or "", summary.compared),
        "bias": summary.bias,
    }


def _interval(found: tuple[float, float] | None, method: str, tasks: int) -> dict[str, Any] | None:
    return found and {"low": found[0], "high": found[1], "method": method, "tasks": tasks}


def _rate_interval(summary: EvalSummary) -> tuple[tuple[float, float] | None, str]:
    """
    Return the interval of the pass rate, and its method.

    Samples of one task depend on each other, so the interval is clustered by task. If all tasks have the same
    pass rate, their spread is zero, and the interval is that of one sample per task.
    """
    rate, tasks = summary.pass_rate, summary.judged_tasks
    if rate is None:
        return None, SHARE_INTERVAL
    if summary.judged == tasks or not summary.pass_error:
        return share_interval(round(rate * tasks), tasks), SHARE_INTERVAL
    found = t_interval(rate, summary.pass_error, tasks)
    return found and (max(found[0], 0.0), min(found[1], 1.0)), CLUSTERED_INTERVAL


def evals_table(evals: Sequence[Evaluation]) -> Listing:
    """Return a table with one row per evaluation: tasks by outcome, and figures of the scored ones."""
    summaries = [evaluation.summary() for evaluation in evals]
    rows = [_row(evaluation, summary) for evaluation, summary in zip(evals, summaries, strict=True)]
    is_judged = any(summary.pass_rate is not None for summary in summaries)
    notes = [f"pass rate: {_rate_methods(evals)}, of the tasks scored"] if is_judged else []
    return Listing(rows=rows, important=_IMPORTANT, right=_RIGHT, notes=notes)


def _row(evaluation: Evaluation, summary: EvalSummary) -> dict[str, Text]:
    spec = evaluation.spec
    row = {
        "evaluation": printed(evaluation.id[:_ID_DIGITS]),
        "suite": printed(" ".join(filter(None, (evaluation.suite, evaluation.suite_version)))),
        "run": printed(evaluation.run_name or evaluation.run_id or NOTHING),
        "spec": printed(" ".join(filter(None, (spec.name, spec.version))) if spec else NOTHING),
        "status": printed(evaluation.status, style=_STYLES.get(evaluation.status, "")),
        "started": printed(moment(evaluation.start_time)),
        "tasks": printed(number(summary.tasks)),
    }
    for name in (*OUTCOMES, "pending"):
        items = getattr(summary, name)
        row[name] = printed(number(items) if items else NOTHING, style=_STYLES.get(name, "") if items else "")
    return row | _figures(summary)


def _figures(summary: EvalSummary) -> dict[str, Text]:
    """Return the means of a summary, with the number of results if not all have a score."""
    return {
        "mean": printed(number(summary.mean) + _share(summary.mean, summary.scored, summary.results)),
        "pass rate": printed(_rate(summary)),
        "delta": _comparison(summary),
    }


def _share(figure: float | None, of: int, among: int) -> str:
    return f" ({of:,} of {among:,})" if figure is not None and of < among else ""


def _rate_methods(evals: Sequence[Evaluation]) -> str:
    """Return the method of the intervals of the pass rates."""
    methods = (_rate_interval(summary)[1] for summary in (one.summary() for one in evals) if summary.judged)
    return "; ".join(dict.fromkeys(methods)) or SHARE_INTERVAL


def _rate(summary: EvalSummary) -> str:
    """Return the pass rate with its interval."""
    if summary.pass_rate is None:
        return NOTHING
    interval, _ = _rate_interval(summary)
    shown = f"{summary.pass_rate:.1%}"
    return shown if interval is None else f"{shown} [{interval[0]:.1%}, {interval[1]:.1%}]"


def _comparison(summary: EvalSummary) -> Text:
    """Return the mean difference to the baseline, with its interval and verdict."""
    if summary.delta is None:
        return printed(NOTHING)
    said = summary.comparison or ""
    return printed(f"{summary.delta:+.4g} {said}", style={"better": "green", "worse": "red"}.get(said, ""))


def _by_type(errors: Mapping[str, int]) -> dict[str, int]:
    """Return errors by type; OpenTelemetry's `_OTHER` is written as other."""
    return {"other" if kind == OTHER_ERROR else kind: found for kind, found in errors.items()}


def _delta(delta: float | None) -> Text:
    """Return the difference of a task to its baseline, with its direction."""
    if delta is None:
        return printed(NOTHING)
    return printed(f"{delta:+.4g} {'▲' if delta > 0 else '▼' if delta < 0 else '='}")


def tasks_table(evaluation: Evaluation) -> Listing:
    """Return a table with one row per task and its effective result; tasks without a result come last."""
    latest = evaluation.latest()
    rows = [_task(result, evaluation) for result in latest.values()]
    rows += [
        {"task": printed(task), "sample": _sample(sample, evaluation), "outcome": printed("pending")}
        for task in evaluation.tasks
        for sample in range(evaluation.samples)
        if (task, sample) not in latest
    ]
    return Listing(rows=rows, important=_IMPORTANT_OF_TASK, right=_RIGHT)


def _sample(sample: int, evaluation: Evaluation) -> Text:
    """Return the number of the sample, if there are several."""
    return printed(number(sample) if evaluation.samples > 1 or sample else NOTHING)


def _task(result: TaskResult, evaluation: Evaluation) -> dict[str, Text]:
    verdict = {None: NOTHING, True: "pass", False: "fail"}[result.passed]
    return {
        "task": printed(result.task),
        "sample": _sample(result.sample, evaluation),
        "outcome": printed(result.outcome, style=_STYLES.get(result.outcome, "")),
        "score": printed(number(result.score)),
        "passed": printed(verdict),
        "baseline": printed(number(result.baseline_score)),
        "delta": _delta(result.delta),
        "duration": printed(duration(result.duration)),
        "episode": printed(result.episode[:_ID_DIGITS] or NOTHING),
        "error": printed(result.error or NOTHING),
    }


def headline(evaluation: Evaluation) -> Text:
    """Return the title of the details of an evaluation."""
    tasks = count(evaluation.summary().tasks, "task")
    samples = f" of {count(evaluation.samples, 'sample')}" if evaluation.samples > 1 else ""
    named = " ".join(filter(None, (evaluation.suite, evaluation.suite_version)))
    return printed(f"{evaluation.id[:_ID_DIGITS]} {named}, {tasks}{samples}")


def details(evaluation: Evaluation, *, sizes: Sequence[int] = ()) -> list[Text]:
    """Return the lines of details that the table of evaluations has no column for."""
    summary = evaluation.summary(sizes=sizes)
    lines = [
        *([summary.delta_text()] if summary.delta is not None else []),
        *(_pass_line(found, summary.tasks) for found in summary.pass_estimates),
        *_coverage_line(summary),
        *([f"errors: {shares(_by_type(summary.errors))}"] if summary.errors else []),
        *_time_line("first token", summary.first_token_time),
        *_time_line("per output token", summary.output_token_time),
    ]
    return list(map(printed, lines))


def _pass_line(found: PassEstimate, tasks: int) -> str:
    figures = f"pass@{found.k} {number(found.pass_at_k)}, pass^{found.k} {number(found.pass_hat_k)}"
    return f"{figures}, mean of {found.tasks:,} of {count(tasks, 'task')}"


def _coverage_line(summary: EvalSummary) -> list[str]:
    if not summary.abstained or summary.coverage is None:
        return []
    answered = f"{summary.scored:,} of {summary.scored + summary.abstained:,} answered"
    return [f"coverage {summary.coverage:.1%}: {answered}; the pass rate is of these"]


def _time_line(name: str, found: TimeQuantiles | None) -> list[str]:
    if found is None:
        return []
    calls = count(found.calls, "call")
    return [f"{name}: median {duration(found.median)}, 95th percentile {duration(found.p95)}, of {calls}"]


def slices_table(evaluation: Evaluation, *, sizes: Sequence[int] = ()) -> Listing | None:
    """Return a table with one row per slice; None without slices."""
    found = evaluation.by_slice(sizes=sizes)
    rows = [_slice(name, summary) for name, summary in found.items()]
    return Listing(rows=rows, important=_IMPORTANT, right=_RIGHT) if rows else None


def _slice(name: str, summary: EvalSummary) -> dict[str, Text]:
    row = {"slice": printed(name), "tasks": printed(number(summary.tasks))}
    for outcome in (*OUTCOMES, "pending"):
        row[outcome] = printed(number(getattr(summary, outcome) or None))
    last = summary.pass_estimates[-1:]
    return row | _figures(summary) | {f"pass@{one.k}": printed(number(one.pass_at_k)) for one in last}
