"""Evaluations and the results of their tasks: their page, and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from mttp.model.estimates import PassEstimate, TimeQuantiles, t_interval
from mttp.model.evaluations import OTHER_ERROR, OUTCOMES, EvalSummary, Evaluation
from mttp.model.gradings import GraderHealth
from mttp.model.statistics.descriptive import SHARE_INTERVAL, share_interval
from mttp.pages.blocks import Block, column, note, problems, section, table
from mttp.pages.graders import documents, graders_table
from mttp.pages.words import count, duration, number, shares
from mttp.reading.jsonable import jsonable

__all__ = ["document", "page"]

_COUNTS: Final = (*OUTCOMES, "pending")
_ID_DIGITS: Final = 8
_FIGURES: Final = (
    *(column(name, kind="number") for name in ("tasks", *_COUNTS, "mean")),
    column("mean_of", help="the results with a score, of all; empty if all have one"),
    *(column("pass_rate", kind="number"), column("delta", kind="number")),
    column("comparison", kind="state"),
)
CLUSTERED_INTERVAL: Final = "Student t, 95 %, clustered by task"
"""Method of the interval of a pass rate with several samples per task."""


def document(
    evaluation: Evaluation, *, graders: Sequence[GraderHealth] = (), sizes: Sequence[int] = ()
) -> dict[str, Any]:
    """
    An evaluation as plain data: its summary, that of each slice, its graders, and the results that count.

    `sizes` says for which k pass@k and pass^k are estimated.
    """
    data: dict[str, Any] = jsonable(evaluation)
    data.pop("baseline_samples", None)
    data["summary"] = _summary(evaluation.summary(sizes=sizes))
    data["slices"] = {name: _summary(of) for name, of in evaluation.by_slice(sizes=sizes).items()}
    data["graders"] = _grader_documents(evaluation, graders)
    return data | {"results": jsonable(list(evaluation.latest().values()))}


def _grader_documents(evaluation: Evaluation, graders: Sequence[GraderHealth]) -> list[dict[str, Any]]:
    """Return the graders of the evaluation's episodes as plain data."""
    episodes = {result.episode for result in evaluation.latest().values() if result.episode}
    return documents(graders, len(episodes))


def _summary(summary: EvalSummary) -> dict[str, Any]:
    """Return a summary as plain data, with derived figures and the method of each interval."""
    data: dict[str, Any] = jsonable(asdict(summary))
    low_high, method = _rate_interval(summary)
    return data | {
        "pass_rate_interval": _interval(low_high, method, summary.judged_tasks),
        "coverage": summary.coverage,
        "delta_interval": _interval(summary.delta_interval, summary.delta_method or "", summary.compared),
        "bias": summary.bias,
    }


def _interval(bounds: tuple[float, float] | None, method: str, tasks: int) -> dict[str, Any] | None:
    return bounds and {"low": bounds[0], "high": bounds[1], "method": method, "tasks": tasks}


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
    bounds = t_interval(rate, summary.pass_error, tasks)
    return bounds and (max(bounds[0], 0.0), min(bounds[1], 1.0)), CLUSTERED_INTERVAL


def page(
    evals: Sequence[Evaluation],
    graders: Mapping[str, Sequence[GraderHealth]],
    *,
    found: Sequence[object] = (),
    sizes: Sequence[int] = (),
    tasks: bool = False,
) -> Iterator[Block | None]:
    """
    Yield a table of evaluations, then of each what the table has no column for, and problems.

    `graders` has those of each evaluation by its id; with `tasks` each task is listed.
    """
    if not evals:
        yield note("no evaluations")
    names = ("evaluation", "suite", "run", "spec")
    columns = [*map(column, names), column("status", kind="state"), column("started", kind="time")]
    rows = [(*_names(evaluation), *_figures(evaluation.summary())) for evaluation in evals]
    yield table("", [*columns, *_FIGURES], rows, _rate_methods(evals))
    for evaluation in evals:
        blocks = [
            *map(note, _details(evaluation.summary(sizes=sizes))),
            _slices(evaluation, sizes),
            graders_table(_grader_documents(evaluation, graders.get(evaluation.id, ()))),
            _tasks(evaluation) if tasks else None,
        ]
        if any(blocks):
            yield section(evaluation.id, _title(evaluation), blocks)
    yield problems(found)


def _names(evaluation: Evaluation) -> tuple[Any, ...]:
    spec, start = evaluation.spec, evaluation.start_time
    return (
        evaluation.id[:_ID_DIGITS],
        " ".join(filter(None, (evaluation.suite, evaluation.suite_version))),
        evaluation.run_name or evaluation.run_id,
        " ".join(filter(None, (spec.name, spec.version))) if spec else None,
        evaluation.status,
        None if start is None else start // 10**6,
    )


def _figures(summary: EvalSummary) -> tuple[Any, ...]:
    """Return the cells of `_FIGURES`."""
    is_part = summary.mean is not None and summary.scored < summary.results
    return (
        summary.tasks,
        *(getattr(summary, name) or None for name in _COUNTS),
        summary.mean,
        f"{summary.scored:,} of {summary.results:,}" if is_part else None,
        _rate(summary),
        None if summary.delta is None else f"{summary.delta:+.4g}",
        summary.comparison if summary.delta is not None else None,
    )


def _rate_methods(evals: Sequence[Evaluation]) -> str:
    """Return the methods of the intervals of the pass rates."""
    judged = [summary for each in evals if (summary := each.summary()).judged]
    methods = "; ".join(dict.fromkeys(_rate_interval(summary)[1] for summary in judged))
    return f"pass rate: {methods}, of the tasks scored" if methods else ""


def _rate(summary: EvalSummary) -> str | None:
    """Return the pass rate with its interval."""
    if summary.pass_rate is None:
        return None
    interval, _ = _rate_interval(summary)
    within = "" if interval is None else f" [{interval[0]:.1%}, {interval[1]:.1%}]"
    return f"{summary.pass_rate:.1%}{within}"


def _title(evaluation: Evaluation) -> str:
    samples = f" of {count(evaluation.samples, 'sample')}" if evaluation.samples > 1 else ""
    named = " ".join(filter(None, (evaluation.suite, evaluation.suite_version)))
    return f"{evaluation.id[:_ID_DIGITS]} {named}, {count(evaluation.summary().tasks, 'task')}{samples}"


def _details(summary: EvalSummary) -> Iterator[str]:
    """Yield sentences about what the table of evaluations has no column for."""
    if summary.delta is not None:
        yield summary.delta_text()
    for estimate in summary.pass_estimates:
        yield _pass_line(estimate, summary.tasks)
    if summary.abstained and summary.coverage is not None:
        answered = f"{summary.scored:,} of {summary.scored + summary.abstained:,} answered"
        yield f"coverage {summary.coverage:.1%}: {answered}; the pass rate is of these"
    if summary.errors:
        kinds = {"other" if kind == OTHER_ERROR else kind: items for kind, items in summary.errors.items()}
        yield f"errors: {shares(kinds)}"
    yield from _times("first token", summary.first_token_time)
    yield from _times("per output token", summary.output_token_time)


def _pass_line(estimate: PassEstimate, tasks: int) -> str:
    k = estimate.k
    figures = f"pass@{k} {number(estimate.pass_at_k)}, pass^{k} {number(estimate.pass_hat_k)}"
    return f"{figures}, mean of {estimate.tasks:,} of {count(tasks, 'task')}"


def _times(name: str, times: TimeQuantiles | None) -> Iterator[str]:
    if times is not None:
        quantiles = f"median {duration(times.median)}, 95th percentile {duration(times.p95)}"
        yield f"{name}: {quantiles}, of {count(times.calls, 'call')}"


def _slices(evaluation: Evaluation, sizes: Sequence[int]) -> Block | None:
    """Return a table with one row per slice; None without slices."""
    slices = evaluation.by_slice(sizes=sizes)
    last = {name: summary.pass_estimates[-1:] for name, summary in slices.items()}
    k = max((estimate.k for estimates in last.values() for estimate in estimates), default=0)
    rows = [
        (name, *_figures(summary), next((estimate.pass_at_k for estimate in last[name]), None))
        for name, summary in slices.items()
    ]
    return table("Slices", [column("slice"), *_FIGURES, column(f"pass@{k}", kind="number")], rows)


def _tasks(evaluation: Evaluation) -> Block | None:
    """Return a table with one row per task and its effective result; tasks without a result come last."""
    latest, has_samples = evaluation.latest(), evaluation.samples > 1
    rows: list[tuple[Any, ...]] = [
        (
            *(result.task, result.sample if has_samples or result.sample else None, result.outcome),
            *(result.score, {None: None, True: "pass", False: "fail"}[result.passed]),
            *(result.baseline_score, _direction(result.delta), result.duration),
            *(result.episode or None, result.error),
        )
        for result in latest.values()
    ]
    rows += [
        (task, sample if has_samples else None, "pending", *[None] * 7)
        for task in evaluation.tasks
        for sample in range(evaluation.samples)
        if (task, sample) not in latest
    ]
    columns = [
        *(column("task"), column("sample", kind="number"), column("outcome", kind="state")),
        *(column("score", kind="number"), column("passed", kind="state"), column("baseline", kind="number")),
        *(column("delta", kind="number"), column("duration", kind="seconds")),
        *(column("episode", kind="episode"), column("error")),
    ]
    return table("Tasks", columns, rows)


def _direction(delta: float | None) -> str | None:
    """Return the difference of a task to its baseline, with its direction."""
    return None if delta is None else f"{delta:+.4g} {'▲' if delta > 0 else '▼' if delta < 0 else '='}"
