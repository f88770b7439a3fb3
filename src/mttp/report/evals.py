"""Evaluations and the results of their tasks as tables and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from mttp.evaluations import OUTCOMES, EvalSummary, Evaluation, TaskResult
from mttp.reading.jsonable import jsonable
from mttp.report.figures import SHARE_INTERVAL, share_interval
from mttp.report.listing import Listing
from mttp.report.words import NOTHING, count, duration, moment, number, printed

__all__ = ["document", "evals_table", "headline", "tasks_table"]

_STYLES = {"completed": "green", "error": "red", "errored": "red"}
_STYLES |= dict.fromkeys(("aborted", "unfinished", "timed_out"), "yellow")
_RIGHT = {"tasks", *OUTCOMES, "pending", "score", "baseline", "mean", "delta", "duration"}
_IMPORTANT = (
    *("evaluation", "suite", "run", "tasks", "scored", "mean", "delta", "errored", "pass rate"),
    *("status", "timed_out", "skipped", "pending", "spec", "started"),
)
_IMPORTANT_OF_TASK = ("task", "outcome", "score", "passed", "delta", "error", "baseline", "episode")
_ID_DIGITS = 8


def document(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as an object of plain data, with its summary and the result that counts of each task."""
    found: dict[str, Any] = jsonable(evaluation)
    summary = evaluation.summary()
    interval = share_interval(summary.passed, summary.judged)
    shown = jsonable(asdict(summary)) | {"pass_rate": summary.pass_rate}
    shown["pass_rate_interval"] = None if interval is None else {"low": interval[0], "high": interval[1]}
    return found | {"summary": shown, "results": jsonable(list(evaluation.latest().values()))}


def evals_table(evals: Sequence[Evaluation]) -> Listing:
    """One row per evaluation: how many tasks came to which end, and the figures of those scored."""
    summaries = [evaluation.summary() for evaluation in evals]
    rows = [_row(evaluation, summary) for evaluation, summary in zip(evals, summaries, strict=True)]
    is_judged = any(summary.pass_rate is not None for summary in summaries)
    notes = [f"pass rate: {SHARE_INTERVAL}, of the tasks scored"] if is_judged else []
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
    rate = _rate(summary)
    figures = {"mean": printed(number(summary.mean)), "pass rate": printed(rate)}
    return row | figures | {"delta": _delta(summary.delta, of=summary)}


def _rate(summary: EvalSummary) -> str:
    """The share that passed, and its interval."""
    if summary.pass_rate is None:
        return NOTHING
    interval = share_interval(summary.passed, summary.judged)
    shown = f"{summary.pass_rate:.1%}"
    return shown if interval is None else f"{shown} [{interval[0]:.1%}, {interval[1]:.1%}]"


def _delta(delta: float | None, *, of: EvalSummary | None = None) -> Text:
    """A difference that says at a glance which way it goes; of several tasks, how many went which way."""
    if delta is None:
        return printed(NOTHING)
    mark, style = ("▲", "green") if delta > 0 else ("▼", "red") if delta < 0 else ("=", "")
    counts = "" if of is None else f" ({of.better}▲ {of.worse}▼ of {of.compared:,})"
    return printed(f"{delta:+.4g} {mark}{counts}", style=style)


def tasks_table(evaluation: Evaluation) -> Listing:
    """One row per task, with the result that counts; those that have none come last."""
    latest = evaluation.latest()
    rows = [_task(result) for result in latest.values()]
    rows += [
        {"task": printed(task), "outcome": printed("pending")}
        for task in evaluation.tasks
        if task not in latest
    ]
    return Listing(rows=rows, important=_IMPORTANT_OF_TASK, right=_RIGHT)


def _task(result: TaskResult) -> dict[str, Text]:
    verdict = {None: NOTHING, True: "pass", False: "fail"}[result.passed]
    return {
        "task": printed(result.task),
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
    """Which evaluation a table of tasks is of."""
    tasks = count(evaluation.summary().tasks, "task")
    return printed(
        f"{evaluation.id[:_ID_DIGITS]} {evaluation.suite} {evaluation.suite_version or ''}, {tasks}"
    )
