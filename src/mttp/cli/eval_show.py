"""`mttp eval show`: the evaluations of a recording, and what became of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from mttp.cli.output import Json, Sources, Strict, console, finish, print_json, progress
from mttp.errors import ReadError
from mttp.evaluating.earlier import chosen
from mttp.evaluations import Evaluation
from mttp.reading.evals import evaluations
from mttp.report.evals import details, document, evals_table, headline, slices_table, tasks_table
from mttp.report.problems import problem_lines

__all__ = ["eval_show"]


def eval_show(
    paths: Sources,
    *,
    tasks: Annotated[bool, typer.Option("--tasks", help="List every task of each evaluation.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="PATH", help="Compare with the evaluations of this recording instead."
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--k", metavar="K", min=1, help="Estimate pass@k and pass^k for this k; repeatable."),
    ] = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Show a recording's evaluations: tasks by outcome, mean score, pass rate and delta to the baseline.

    Tasks that were skipped, abstained from, failed or took too long are counted apart, and in no mean.
    Below stand what follows from several samples, the delta's interval, errors by type, and slices.
    With --baseline each is compared with the last evaluation there of its suite, version and spec.
    The exit code is 1 if there are problems and --strict is given, and 2 if something can't be read;
    how the tasks fared does not change it.

    \b
    Examples:
      mttp eval show runs/eval.jsonl
      mttp eval show runs/eval.jsonl --tasks --baseline runs/before.jsonl
      mttp eval show runs/ --json | jq '.evals[].summary.mean'
    """
    with progress(paths) as advance:
        found = evaluations(paths, progress=advance)
    evals = found.evals if baseline is None else _compared(found.evals, baseline)
    if json:
        shown = [document(evaluation, sizes=sizes or ()) for evaluation in evals]
        print_json({"evals": shown, "problems": found.problems})
    else:
        out = console()
        out.print(evals_table(evals) if evals else "no evaluations")
        for evaluation in evals:
            _print_details(out, evaluation, sizes or (), tasks=tasks)
        if found.problems:
            out.print("", problem_lines(found.problems), sep="\n")
    finish(found.problems, strict=strict)


def _print_details(out: Console, evaluation: Evaluation, sizes: Sequence[int], *, tasks: bool) -> None:
    """What the row of an evaluation does not say, its slices, and its tasks if they are asked for."""
    lines, slices = details(evaluation, sizes=sizes), slices_table(evaluation, sizes=sizes)
    if lines or slices or tasks:
        out.print("", headline(evaluation), *lines, sep="\n")
    if slices:
        out.print("", slices, sep="\n")
    if tasks:
        out.print()
        out.print(tasks_table(evaluation))


def _compared(evals: Sequence[Evaluation], baseline: str) -> list[Evaluation]:
    """The evaluations against that recording; raises ReadError where it has something for none of them."""
    there = evaluations(baseline).evals
    compared, errors = [], []
    for evaluation in evals:
        try:
            compared.append(evaluation.against(chosen(there, evaluation, where=baseline)))
        except ReadError as error:
            errors.append(error)
            compared.append(evaluation.against({}))
    if errors and len(errors) == len(evals):
        raise errors[0]
    return compared
