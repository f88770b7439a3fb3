"""`mttp summary`: statistics of a recording."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import (
    Json,
    Sources,
    StrictHealth,
    console,
    fail,
    fail_on,
    failures,
    print_json,
    progress,
    say,
)

__all__ = ["summary"]


def summary(
    paths: Sources,
    *,
    json: Json = False,
    markdown_: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a CI job summary.")
    ] = False,
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
      mttp summary runs/ --json | jq .totals.return.mean

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has something that --fail-on or --strict names.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.cli.rendering.summary import document, markdown, render
    from mttp.tables import summarize

    words = fail_on(fail_on_, strict=strict)
    with progress(paths) as advance:
        found = summarize(paths, progress=advance)
    if json:
        print_json(document(found))
    elif markdown_:
        say(markdown(found))
    else:
        out = console()
        out.print(render(found, terminal=out.is_terminal))
    faults = sum(found.faults.values())
    fail(failures(words, gradings=found.failed_gradings, faults=faults, problems=found.problems))
