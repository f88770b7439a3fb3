"""`mttp summary`: statistics of a recording."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.conditions import selection
from mttp.cli.output import (
    Json,
    Markdown,
    Sources,
    StrictHealth,
    Where,
    fail,
    fail_on,
    failures,
    print_json,
    print_page,
    progress,
)

__all__ = ["summary"]


def summary(
    paths: Sources,
    *,
    json: Json = False,
    markdown: Markdown = False,
    where: Where = None,
    strict: StrictHealth = False,
    fail_on_: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="WORDS",
            help="Exit with 1 on any of these, separated by commas: gradings (failed gradings), "
            "faults (recorded faults), problems; or none.",
        ),
    ] = "none",
) -> None:
    """
    Print statistics of a recording.

    Prints for each run: returns, statuses, outcomes, reward specs, the health of graders and components,
    faults, updates, durations, tokens, cost and a learning curve; then totals and problems.
    Large files need little memory: episodes are not kept.

    \b
    Examples:
      mttp summary runs/cartpole.jsonl
      mttp summary 'runs/**/*.jsonl.gz'
      mttp summary runs/ --fail-on gradings,faults
      mttp summary runs/ --where split=eval --where "length > 10"
      mttp summary runs/ --json | jq .totals.return.mean

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has something that --fail-on or --strict names.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.pages.summary import document, page
    from mttp.tables import Database
    from mttp.tables.summary import summary_of

    words = fail_on(fail_on_, strict=strict)
    traces = selection(paths, where) if where else None
    with progress(paths) as advance, Database(paths, traces=traces, progress=advance) as database:
        figures = summary_of(database)
    if json:
        print_json(document(figures))
    else:
        print_page(page(figures), markdown=markdown)
    faults = sum(figures.faults.values())
    fail(failures(words, gradings=figures.failed_gradings, faults=faults, problems=figures.problems))
