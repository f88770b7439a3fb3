"""`mttp eval show`: the evaluations of a recording and the results of their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mttp.cli.output import Json, Sources, Strict, console, finish, print_json, progress
from mttp.errors import ReadError

if TYPE_CHECKING:
    from rich.console import Console

    from mttp.model.evaluations import Evaluation

__all__ = ["eval_show"]


def eval_show(
    paths: Sources,
    *,
    tasks: Annotated[bool, typer.Option("--tasks", help="List every task of each evaluation.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="PATH", help="Compare with the evaluations of this recording."),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--k", metavar="K", min=1, help="Estimate pass@k and pass^k for this k; may be repeated."
        ),
    ] = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Show the evaluations of a recording: outcomes, scores, pass rates and deltas.

    Tasks that were skipped, abstained, failed or timed out are counted separately and excluded from means.
    Below the table are, for each evaluation: pass@k and pass^k for several samples, the interval of the
    delta, errors by type, slices, and the health of the graders that scored the episodes.
    With --baseline, each evaluation is compared with the last evaluation of that recording that has the
    same suite, version and spec. Results of tasks do not change the exit code.

    \b
    Examples:
      mttp eval show runs/eval.jsonl
      mttp eval show runs/eval.jsonl --tasks --baseline runs/before.jsonl
      mttp eval show runs/ --json | jq '.evals[].summary.mean'

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.cli.rendering.evals import document, evals_table, grader_documents
    from mttp.cli.rendering.problems import problem_lines
    from mttp.reading.evals import evaluations
    from mttp.tables import Database
    from mttp.tables.graders import graders_of_evaluation

    with progress(paths) as advance:
        found = evaluations(paths, progress=advance)
    with Database(paths) as database:
        graders = {evaluation.id: graders_of_evaluation(database, evaluation) for evaluation in found.evals}
    evals = found.evals if baseline is None else _compared(found.evals, baseline)
    if json:
        documents = [document(each, graders=graders[each.id], sizes=sizes or ()) for each in evals]
        print_json({"evals": documents, "problems": found.problems})
    else:
        out = console()
        out.print(evals_table(evals) if evals else "no evaluations")
        for evaluation in evals:
            of_evaluation = grader_documents(evaluation, graders[evaluation.id])
            _print_details(out, evaluation, of_evaluation, sizes or (), tasks=tasks)
        if found.problems:
            out.print("", problem_lines(found.problems), sep="\n")
    finish(found.problems, strict=strict)


def _print_details(
    out: Console,
    evaluation: Evaluation,
    graders: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    *,
    tasks: bool,
) -> None:
    """Print the details, slices and graders of an evaluation, and its tasks if `tasks`."""
    from mttp.cli.rendering.evals import details, headline, slices_table, tasks_table
    from mttp.cli.rendering.graders import table

    lines, slices = details(evaluation, sizes=sizes), slices_table(evaluation, sizes=sizes)
    tables = [slices, table(graders) if graders else None, tasks_table(evaluation) if tasks else None]
    if lines or any(tables):
        out.print("", headline(evaluation), *lines, sep="\n")
    for found in filter(None, tables):
        out.print()
        out.print(found)


def _compared(evals: Sequence[Evaluation], baseline: str) -> list[Evaluation]:
    """Compare evaluations with those of `baseline`; raise ReadError if none of them has a counterpart."""
    from mttp.reading.evals import evaluations
    from mttp.workflows.evaluating.previous import chosen  # imports OpenTelemetry

    previous = evaluations(baseline).evals
    compared, errors = [], []
    for evaluation in evals:
        try:
            compared.append(evaluation.against(chosen(previous, evaluation, where=baseline)))
        except ReadError as error:
            errors.append(error)
            compared.append(evaluation.against({}))
    if errors and len(errors) == len(evals):
        raise errors[0]
    return compared
