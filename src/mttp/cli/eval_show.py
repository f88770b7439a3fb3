"""`mttp eval show`: the evaluations of a recording and the results of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import Json, Sources, Strict, finish, print_json, print_page, progress
from mttp.errors import ReadError

if TYPE_CHECKING:
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
    from mttp.pages.evals import document, page
    from mttp.reading.evals import evaluations
    from mttp.tables import Database
    from mttp.tables.graders import graders_of_evaluation

    with progress(paths) as advance:
        results = evaluations(paths, progress=advance)
    with Database(paths) as database:
        graders = {evaluation.id: graders_of_evaluation(database, evaluation) for evaluation in results.evals}
    evals = results.evals if baseline is None else _compared(results.evals, baseline)
    if json:
        documents = [document(each, graders=graders[each.id], sizes=sizes or ()) for each in evals]
        print_json({"evals": documents, "problems": results.problems})
    else:
        blocks = page(evals, graders, found=results.problems, sizes=sizes or (), tasks=tasks)
        print_page(blocks, everything=tasks)
    finish(results.problems, strict=strict)


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
