"""`mttp compare`: whether one recording is better than another."""

from __future__ import annotations

from typing import Annotated

import typer

from mttp.cli.output import Json, Markdown, fail, print_json, print_page, progress
from mttp.pages.study import comparison_headline, comparison_page
from mttp.study import compare as compared

__all__ = ["compare"]


def compare(
    base: Annotated[
        str,
        typer.Argument(metavar="BASE", help="The recording to compare with.", show_default=False),
    ],
    candidate: Annotated[
        str,
        typer.Argument(metavar="CANDIDATE", help="The recording that may be better.", show_default=False),
    ],
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="A metric: return, reward, success, coverage, accuracy_when_answered, length, tokens, "
            "duration, latency, time_to_first_token, cost, entropy, components.NAME, metrics.NAME, pass@K or "
            "pass^K; may be repeated. The first one decides.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="SLICE",
            help="Also compare by split, slices, env, group, inputs.NAME, metadata.NAME or an attribute "
            "such as task.split.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option("--margin", metavar="NUMBER", help="The effect up to which the sides are equivalent."),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="N",
            help="Last episodes of each training run that count; 'N updates': the episodes of its last "
            "updates; area: the area under its curve.",
        ),
    ] = "100",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="KIND",
            help="Accept a difference in env, tasks, inputs, spec or grader; missing: leave it out; sampled: "
            "a side has only some episodes of its run. May be repeated.",
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence", metavar="SHARE", min=0.5, max=0.999, help="Confidence of the intervals."
        ),
    ] = 0.95,
    json: Json = False,
    markdown: Markdown = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 unless the candidate is better or equivalent.")
    ] = False,
) -> None:
    """
    Compare two recordings: is the candidate better than the base?

    Episodes are paired by task, or by seed, where both sides have the same ones.
    Several runs on a side are several seeds: each run is one value.
    The first metric decides; the p values of the others are corrected by Holm.

    \b
    Examples:
      mttp compare runs/base.jsonl runs/new.jsonl
      mttp compare base/ new/ --metric pass@4 --by split
      mttp compare base.jsonl new.jsonl --margin 0.02 --strict

    \b
    Exit codes:
      0  Everything is fine.
      1  --strict, and the candidate is worse or inconclusive.
      2  Wrong usage, input that can't be read,
         or sides that can't be compared.
    """
    with progress([base, candidate]) as advance:
        result = compared(
            base,
            candidate,
            metrics=metric or (),
            by=by,
            margin=margin,
            window=int(window) if window.isdecimal() else window,
            allow=allow or (),
            confidence=confidence,
            progress=advance,
        )
    if json:
        print_json(result.to_dict())
    else:
        print_page(comparison_page(result), markdown=markdown)
    fail([comparison_headline(result)] if strict and result.verdict in ("worse", "inconclusive") else [])
