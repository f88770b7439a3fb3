"""`mttp diagnose`: what is wrong with a training run."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, Markdown, fail, print_json, print_page, progress

__all__ = ["diagnose"]

_LEVELS = ("high", "medium", "low", "none")


def diagnose(
    recording: Annotated[
        str, typer.Argument(metavar="RUN", help="The recording of the run.", show_default=False)
    ],
    *,
    quality: Annotated[
        str | None,
        typer.Option(
            "--quality",
            metavar="NAME",
            help="What rewards should stand for: the grader of a late score, a split, held_out, success, "
            "components.NAME or metrics.NAME; by default the first of these in the recording, or its "
            "verifier.",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The run, by id or name, if there are several.")
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="List every detector, also those that could not judge, with reasons."),
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit with 1 on findings of this severity or worse: high, medium, low; or none.",
        ),
    ] = "high",
) -> None:
    """
    Diagnose a training run: what is wrong with it, and what could not be judged.

    Looks for reward hacking, over-optimization, collapse, drift, forgetting, leakage and noisy graders.
    Detectors that can't judge are named in one line; --all lists them with the data that they lack.

    \b
    Examples:
      mttp diagnose runs/grpo.jsonl
      mttp diagnose runs/grpo.jsonl --quality components.correct
      mttp diagnose runs/grpo.jsonl --fail-on medium --json

    \b
    Exit codes:
      0  Everything is fine: no finding of the severity of --fail-on.
      1  There is a finding of that severity or worse.
      2  Wrong usage, or input that can't be read.
    """
    if fail_on not in _LEVELS:
        raise typer.BadParameter(f"{fail_on!r} is not one of {', '.join(_LEVELS)}", param_hint="--fail-on")
    from mttp.pages.study import diagnosis_headline, diagnosis_page
    from mttp.study import diagnose as diagnosed

    with progress([recording]) as advance:
        diagnosis = diagnosed(recording, quality=quality, run=run, progress=advance)
    if json:
        print_json(diagnosis.to_dict())
    else:
        print_page(diagnosis_page(diagnosis), markdown=markdown, everything=all_)
    bad = () if fail_on == "none" else diagnosis.at_least(fail_on)  # type: ignore[arg-type]  # checked above
    fail([diagnosis_headline(diagnosis)] if bad else [])
