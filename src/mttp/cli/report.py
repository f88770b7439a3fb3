"""`mttp report`: a recording as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.output import Json, Markdown, Sources, fail, print_json, print_page, progress, say
from mttp.pages.words import count, visible

__all__ = ["report"]


def report(
    paths: Sources,
    *,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="BASE", help="Recording to compare with; may be repeated."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option("--rules", metavar="FILE", help="Promotion rules, as for mttp gate: shows its verdict."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="KIND",
            help="Accept a difference to the baseline, as for mttp compare; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it is replaced.")
    ] = Path("report.html"),
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Largest number of episodes in the report.")
    ] = 5_000,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="FILE", help="tokenizer.json, or its directory: shows the texts of tokens."
        ),
    ] = None,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """
    Write a recording as one HTML file that opens offline.

    It shows the runs, curves, distributions, graders, slices, updates, groups, what mttp diagnose finds, the
    differences to --baseline and the verdict of --rules; and a list of episodes, each with its messages, tool
    calls, rewards, timeline and tokens.
    If there are more than --limit episodes, the list has those with the lowest and the highest rewards,
    errors, examples of findings, and some others; curves and tables cover all episodes.
    --markdown prints the overview, too.

    \b
    Examples:
      mttp report runs/grpo.jsonl
      mttp report runs/new.jsonl --baseline runs/old.jsonl -o new.html
      mttp report runs/new.jsonl --rules promotion.yaml --json

    \b
    Exit codes:
      0  Everything is fine: the report was written.
      1  The recording can't be compared with the baseline, as the report says.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.viewing import report as make
    from mttp.viewing.token_texts import load_tokenizer

    if out.is_dir() or not out.parent.is_dir():
        raise typer.BadParameter(f"{out} can't be written: its directory must exist", param_hint="--out")
    pieces = None if tokenizer is None else load_tokenizer(tokenizer)
    with progress(paths) as advance:
        page = make(
            paths,
            baseline=baseline,
            rules=rules,
            allow=allow or (),
            limit=limit,
            pieces=pieces,
            progress=advance,
        )
    page.write(out)
    if json:
        print_json({**page.to_dict(), "file": str(out), "bytes": out.stat().st_size})
    elif markdown:
        print_page(page.sections, markdown=True)
    else:
        size = f"{out.stat().st_size / 1e6:.1f} MB"
        say(
            visible(
                f"wrote {out} ({size}): {count(page.episodes, 'episode')}, {page.pages:,} of them to open"
            )
        )
        for line in page.headlines:
            say(visible(f"  {line}"))
    fail([] if page.refusal is None else [f"not compared with the baseline: {page.refusal}"])
