"""`mttp spec test`: the cases of a reward spec, before it pays anybody."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.output import Json, SpecFile, Trust, console, print_json, working
from mttp.errors import SpecError

__all__ = ["spec_test"]


def spec_test(
    file: SpecFile,
    *,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Score each case N times.")
    ] = 1,
    human: Annotated[
        Path | None, typer.Option("--human", metavar="CSV", help="People's scores: columns case and human.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="PATH", help="Also write JUnit XML to this file.")
    ] = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """
    Score a reward spec's cases, and compare the scores with what they expect.

    Shows what each component gave, what differs between repeats, what no case covers, and how far
    rewards agree with people.

    \b
    Examples:
      mttp spec test specs/gsm8k.yaml
      mttp spec test specs/gsm8k.yaml --repeats 5 --junit report.xml
      mttp spec test specs/gsm8k.yaml --json | jq .failed

    \b
    Exit codes:
      0  Everything is fine.
      1  A case is not as expected.
      2  Wrong usage.
      3  The spec can't be read, or can't be used.
    """
    from mttp.report import trials
    from mttp.rewards.spec import RewardSpec
    from mttp.rewards.trials import try_cases

    spec = RewardSpec.load(file, trust=trust)
    people = None if human is None else _people(human)
    with working(f"scoring {len(spec.document.cases):,} cases"):
        trial = try_cases(spec.plan, spec.document.cases, repeats=repeats, human=people)
    if junit is not None:
        junit.write_text(trials.junit(spec, trial), encoding="utf-8")
    if json:
        print_json(trials.document(spec, trial))
    else:
        console().print(trials.render(spec, trial))
    if trial.failed:
        raise typer.Exit(1)


def _people(path: Path) -> dict[str, float]:
    """People's scores by case."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        lacking = {"case", "human"} - set(rows.fieldnames or ())
        if lacking:
            columns = " and no column ".join(sorted(lacking))
            raise SpecError(f"it has no column {columns}", path=str(path), line=1)
        return {row["case"]: _score(path, rows.line_num, row["human"]) for row in rows}


def _score(path: Path, line: int, cell: str | None) -> float:
    try:
        found = float(cell or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise SpecError(f"human is {cell!r}, expected a number", path=str(path), line=line)
    return found
