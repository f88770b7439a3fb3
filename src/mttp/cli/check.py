"""`mttp check`: validate each span of a recording against the semantic conventions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.output import (
    Json,
    Markdown,
    Sources,
    StrictHealth,
    fail,
    fail_on,
    failures,
    print_json,
    print_page,
    progress,
)

if TYPE_CHECKING:
    from mttp.reading.checking import Findings

__all__ = ["check"]

_DEFAULT = "violation,gradings,faults,problems"


def check(
    paths: Sources,
    *,
    fail_on_: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="WORDS",
            help="Exit with 1 on any of these, separated by commas: findings of a level or worse "
            "(violation, improvement, information), gradings (failed gradings), faults (recorded faults), "
            "problems; or none.",
        ),
    ] = _DEFAULT,
    json: Json = False,
    markdown: Markdown = False,
    strict: StrictHealth = False,
) -> None:
    """
    Validate each span of a recording against the semantic conventions.

    Finds attributes that are missing, of the wrong type, deprecated or unknown; undefined enum values;
    and spans of the wrong kind or with the wrong parent. Ids and levels are those of weaver live-check.
    Recorded faults and failed gradings are findings, too. A recording without mttp spans fails the check.
    Episodes that are missing of a run are a problem, as damaged lines are.

    \b
    Examples:
      mttp check runs/cartpole.jsonl
      mttp check runs/ --fail-on violation,gradings
      mttp check runs/ --json | jq .ids

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has something that --fail-on or --strict names,
         or has no mttp spans.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.pages.checks import check_document, check_page
    from mttp.reading.checking import LEVELS
    from mttp.reading.checking import check as find

    words = fail_on(fail_on_, others=LEVELS, strict=strict)
    with progress(paths) as advance:
        findings = find(paths, progress=advance)
    if json:
        print_json(check_document(findings))
    else:
        print_page(check_page(findings), markdown=markdown)
    gradings, faults = findings.failed_gradings, findings.faults
    reasons = failures(words, gradings=gradings, faults=faults, problems=findings.problems)
    fail([*_findings(findings, words), *reasons])


def _findings(findings: Findings, words: Collection[str]) -> list[str]:
    """Return why the findings fail the command: their level, or no span to check."""
    from mttp.pages.checks import check_headline
    from mttp.pages.words import count
    from mttp.reading.checking import LEVELS

    if words and not findings.spans:
        others = f"; {count(findings.foreign, 'span')} of other libraries" if findings.foreign else ""
        return [f"nothing was checked: the recording has no mttp spans{others}"]
    chosen = [level for level in LEVELS if level in words]
    return [check_headline(findings)] if chosen and findings.at_least(chosen[-1]) else []
