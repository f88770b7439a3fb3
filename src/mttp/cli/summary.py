"""`mttp summary`: what a recording amounts to."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, Sources, Strict, console, finish, print_json, progress
from mttp.reading import summarize
from mttp.report.summary import document, markdown, render

__all__ = ["summary"]


def summary(
    paths: Sources,
    *,
    json: Json = False,
    markdown_: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for the summary of a CI job.")
    ] = False,
    strict: Strict = False,
) -> None:
    """
    Sum up a recording in figures.

    Returns, statuses, outcomes, reward specs, components, durations, tokens, a learning curve, and problems.
    Episodes are never built, so that this is fast and needs little memory however large the files are.

    \b
    Examples:
      mttp summary runs/cartpole.jsonl
      mttp summary 'runs/**/*.jsonl.gz'
      mttp summary runs/ --json | jq .return.mean

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    with progress(paths) as advance:
        found = summarize(paths, progress=advance)
    if json:
        print_json(document(found))
    elif markdown_:
        print(markdown(found))
    else:
        out = console()
        out.print(render(found, terminal=out.is_terminal))
    finish(found.problems, strict=strict)
