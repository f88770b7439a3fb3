"""`mttp spec test`: score the cases of a reward spec, or recorded episodes."""

from __future__ import annotations

import csv
import math
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mttp.cli.output import (
    Json,
    SpecFile,
    Trust,
    TrustModule,
    print_json,
    print_page,
    recorded_episodes,
    say,
    working,
)
from mttp.errors import SpecError
from mttp.otlp import regular_files

if TYPE_CHECKING:
    from mttp.rewards.case_runs import Instability
    from mttp.rewards.spec import RewardSpec

__all__ = ["spec_test"]

_MAX_BYTES: Final = 64 << 20
"""Maximum size of the file of human scores."""


def spec_test(
    file: SpecFile,
    *,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Score each case N times.")
    ] = 1,
    max_unstable: Annotated[
        float | None,
        typer.Option(
            "--max-unstable",
            metavar="RATE",
            min=0.0,
            max=1.0,
            help="Exit with 1 if a larger share of cases or episodes scores differently between repeats.",
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="RUN", help="Score these recorded episodes, not the cases; may be repeated."
        ),
    ] = None,
    human: Annotated[
        Path | None, typer.Option("--human", metavar="CSV", help="Human scores, in columns case and human.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="PATH", help="Also write JUnit XML to this file.")
    ] = None,
    trust: Trust = False,
    trust_module: TrustModule = None,
    json: Json = False,
) -> None:
    """
    Score the cases of a reward spec, and compare the scores with the expected ones.

    Shows the score of each component, differences between repeats, gaps in the coverage of the cases, and
    the agreement of rewards with human scores.

    With --on, the spec scores the recorded inputs of a run's episodes instead; the rewards are compared
    with the scores, outcomes and labels of later annotations.

    \b
    Examples:
      mttp spec test specs/gsm8k.yaml
      mttp spec test specs/gsm8k.yaml --repeats 5 --max-unstable 0.05
      mttp spec test specs/gsm8k.yaml --junit report.xml
      mttp spec test specs/gsm8k.yaml --on runs/ --json | jq .agreements

    \b
    Exit codes:
      0  Everything is fine.
      1  A case fails, or a larger share is unstable than allowed;
         with --on, scoring an episode fails, or none can be scored.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.rewards.spec import RewardSpec

    if max_unstable is not None and repeats < 2:
        raise typer.BadParameter("needs --repeats 2 or more", param_hint="--max-unstable")
    if on and (human is not None or junit is not None):
        raise typer.BadParameter(
            "can't be combined with --human or --junit, which need cases", param_hint="--on"
        )
    spec = RewardSpec.load(file, trust=trust or trust_module or ())
    if on:
        failed, unstable = _on_episodes(spec, on, repeats=repeats, json=json)
    else:
        scores = None if human is None else _human_scores(human)
        failed, unstable = _on_cases(spec, scores, junit, repeats=repeats, json=json)
    rate = unstable.rate if unstable is not None else None
    is_unstable = max_unstable is not None and rate is not None and rate > max_unstable
    if is_unstable:
        say(f"unstable: {rate:.4g} is above --max-unstable {max_unstable:g}", error=True)
    if failed or is_unstable:
        raise typer.Exit(1)


def _on_cases(
    spec: RewardSpec, human: dict[str, float] | None, junit: Path | None, *, repeats: int, json: bool
) -> tuple[bool, Instability | None]:
    """Score the cases and print the results; return whether one failed, and their instability."""
    from mttp.pages.ci import cases_junit
    from mttp.pages.scoring import cases_document, cases_page
    from mttp.rewards.case_runs import run_cases

    with working(f"scoring {len(spec.document.cases):,} cases"):
        report = run_cases(spec.plan, spec.document.cases, repeats=repeats, human=human)
    if junit is not None:
        junit.write_bytes(cases_junit(spec, report))
    if json:
        print_json(cases_document(spec, report))
    else:
        print_page(cases_page(spec, report))
    return bool(report.failed), report.instability


def _on_episodes(
    spec: RewardSpec, on: list[str], *, repeats: int, json: bool
) -> tuple[bool, Instability | None]:
    """Score recorded episodes and print the results; return whether scoring failed, and their instability."""
    from mttp.pages.scoring import validation_document, validation_page
    from mttp.rewards.validation import validate

    episodes = recorded_episodes(on)
    with working(f"scoring {len(episodes):,} episodes"):
        validation = validate(episodes, spec, repeats=repeats)
    if json:
        print_json(validation_document(spec, validation))
    else:
        print_page(validation_page(spec, validation))
    return not validation.episodes or "error" in validation.statuses, validation.instability


def _human_scores(path: Path) -> dict[str, float]:
    """Return the human scores by case."""
    try:
        text = regular_files.read(path, _MAX_BYTES).decode("utf-8-sig")
        rows = csv.DictReader(StringIO(text, newline=""))
        lacking = {"case", "human"} - set(rows.fieldnames or ())
        if lacking:
            columns = " and no column ".join(sorted(lacking))
            raise SpecError(f"it has no column {columns}", path=str(path), line=1)
        return {row["case"]: _score(path, rows.line_num, row["human"]) for row in rows}
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"can't be read as text: {error}; save it as UTF-8", path=str(path)) from error


def _score(path: Path, line: int, cell: str | None) -> float:
    try:
        score = float(cell or "")
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise SpecError(f"human is {cell!r}, expected a number", path=str(path), line=line)
    return score
