"""Evaluations and the results of their tasks as tables and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from mttp.evaluations import OUTCOMES, EvalSummary, Evaluation, TaskResult
from mttp.reading.jsonable import jsonable
from mttp.report.figures import SHARE_INTERVAL, share_interval
from mttp.report.words import NOTHING, count, duration, moment, number, printed

__all__ = ["document", "evals_table", "headline", "tasks_table"]

_STYLES = {"completed": "green", "error": "red", "errored": "red"}
_STYLES |= dict.fromkeys(("aborted", "unfinished", "timed_out"), "yellow")
_RIGHT = {"tasks", "sample", *OUTCOMES, "pending", "score", "baseline", "mean", "delta", "duration"}
_SHRINKING = {"suite", "run", "spec", "task", "error"}
_ID_DIGITS = 8


def document(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as an object of plain data, with its summary and the result that counts of each task."""
    found: dict[str, Any] = jsonable(evaluation)
    summary = evaluation.summary()
    interval = share_interval(summary.passed, summary.judged)
    shown = jsonable(asdict(summary)) | {"pass_rate": summary.pass_rate}
    shown["pass_rate_interval"] = None if interval is None else {"low": interval[0], "high": interval[1]}
    return found | {"summary": shown, "results": jsonable(list(evaluation.latest().values()))}


def evals_table(evals: Sequence[Evaluation]) -> Table:
    """One row per evaluation: how many tasks came to which end, and the figures of those scored."""
    rows = [_row(evaluation, evaluation.summary()) for evaluation in evals]
    notes = {"pass rate": f"pass rate: {SHARE_INTERVAL}, of the tasks scored"}
    return _table(rows, notes=notes)


def _row(evaluation: Evaluation, summary: EvalSummary) -> dict[str, Text]:
    spec = evaluation.spec
    row = {
        "evaluation": printed(evaluation.id[:_ID_DIGITS]),
        "suite": printed(" ".join(filter(None, (evaluation.suite, evaluation.suite_version)))),
        "run": printed(evaluation.run_name or evaluation.run_id or NOTHING, shrinks=True),
        "spec": printed(" ".join(filter(None, (spec.name, spec.version))) if spec else NOTHING, shrinks=True),
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
    counts = "" if of is None else f" ({of.higher}▲ {of.lower}▼ of {of.compared:,})"
    return printed(f"{delta:+.4g} {mark}{counts}", style=style)


def tasks_table(evaluation: Evaluation) -> Table:
    """One row per task, with the result that counts; those that have none come last."""
    latest = evaluation.latest()
    rows = [_task(result, evaluation) for result in latest.values()]
    rows += [
        {"task": printed(task), "sample": _sample(sample, evaluation), "outcome": printed("pending")}
        for task in evaluation.tasks
        for sample in range(evaluation.samples)
        if (task, sample) not in latest
    ]
    return _table(rows, notes={})


def _sample(sample: int, evaluation: Evaluation) -> Text:
    """Which sample it is, where there are several."""
    return printed(number(sample) if evaluation.samples > 1 or sample else NOTHING)


def _task(result: TaskResult, evaluation: Evaluation) -> dict[str, Text]:
    verdict = {None: NOTHING, True: "pass", False: "fail"}[result.passed]
    return {
        "task": printed(result.task, shrinks=True),
        "sample": _sample(result.sample, evaluation),
        "outcome": printed(result.outcome, style=_STYLES.get(result.outcome, "")),
        "score": printed(number(result.score)),
        "passed": printed(verdict),
        "baseline": printed(number(result.baseline_score)),
        "delta": _delta(result.delta),
        "duration": printed(duration(result.duration)),
        "episode": printed(result.episode[:_ID_DIGITS] or NOTHING),
        "error": printed(result.error or NOTHING, shrinks=True),
    }


def _table(rows: Sequence[Mapping[str, Text]], *, notes: Mapping[str, str]) -> Table:
    """The rows; a column that says nothing in any of them isn't there."""
    nothing = printed(NOTHING)
    names = [
        name
        for name in (rows[0] if rows else ())
        if any(row.get(name, nothing).plain != NOTHING for row in rows)
    ]
    caption = Text("; ".join(note for name, note in notes.items() if name in names)) or None
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    for name in names:
        justify: JustifyMethod = "right" if name in _RIGHT else "left"
        table.add_column(printed(name.replace("_", " ")), justify=justify, no_wrap=name not in _SHRINKING)
    for row in rows:
        table.add_row(*(row.get(name, nothing) for name in names))
    return table


def headline(evaluation: Evaluation) -> Text:
    """Which evaluation a table of tasks is of."""
    tasks = count(evaluation.summary().tasks, "task")
    return printed(
        f"{evaluation.id[:_ID_DIGITS]} {evaluation.suite} {evaluation.suite_version or ''}, {tasks}"
    )
