"""`mttp check`: each span of a recording against the registry of the convention."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated, cast

import typer

from mttp.checking import Findings, Level
from mttp.checking import check as find
from mttp.cli.output import Json, Sources, Strict, console, finish, print_json, progress
from mttp.report.findings import document, headline, markdown, render
from mttp.report.words import count

__all__ = ["check"]


class FailOn(str, Enum):
    """What `--fail-on` takes."""

    VIOLATION = "violation"
    IMPROVEMENT = "improvement"
    INFORMATION = "information"
    NONE = "none"


def check(
    paths: Sources,
    *,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            metavar="LEVEL",
            help="Exit with 1 on findings of this level, or worse: "
            "violation, improvement, information or none.",
        ),
    ] = FailOn.VIOLATION,
    json: Json = False,
    markdown_: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for the summary of a CI job.")
    ] = False,
    strict: Strict = False,
) -> None:
    """
    Check each span of a recording against the registry of the convention.

    Attributes that are missing, of the wrong type, deprecated or unknown, undefined enum values,
    and spans of the wrong kind or in the wrong place. Ids and levels are those of weaver's live-check.
    Where nothing of mttp is recorded, nothing was checked, and that fails too.

    \b
    Examples:
      mttp check runs/cartpole.jsonl
      mttp check runs/ --fail-on improvement --strict
      mttp check runs/ --json | jq .ids

    \b
    Exit codes:
      0  Everything is fine.
      1  There are findings of the level of --fail-on, or nothing was checked;
         under --strict, the recording has problems.
      2  Wrong usage, or input that can't be read.
    """
    with progress(paths) as advance:
        findings = find(paths, progress=advance)
    if json:
        print_json(document(findings))
    elif markdown_:
        print(markdown(findings))
    else:
        console().print(render(findings))
    _fail(findings, fail_on)
    finish(findings.problems, strict=strict)


def _fail(findings: Findings, fail_on: FailOn) -> None:
    """Exit with 1 where something is bad enough, or nothing was there to be checked."""
    if fail_on is not FailOn.NONE and not findings.spans:
        others = f", but {count(findings.foreign, 'span')} of others" if findings.foreign else ""
        print(f"mttp: nothing was checked: no span of mttp is there{others}", file=sys.stderr)
        raise typer.Exit(1)
    if fail_on is not FailOn.NONE and findings.at_least(cast(Level, fail_on.value)):
        print(f"mttp: {headline(findings)}; --fail-on is {fail_on.value}", file=sys.stderr)
        raise typer.Exit(1)
