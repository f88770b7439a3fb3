"""`mttp plot`: learning curves as a picture, with a band over seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.conditions import selection
from mttp.cli.output import Json, Sources, Strict, Where, finish, print_json, progress, say
from mttp.pages.words import count, visible

if TYPE_CHECKING:
    from mttp.study.learning_curves import Curves

__all__ = ["plot"]

_FORMATS = (".png", ".svg", ".pdf")
_HEIGHT = 3.2
_WIDTH = 8.0
_RESOLUTION = 200


def plot(
    paths: Sources,
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="What to draw: return, success, length, tokens, components.NAME, metrics.NAME; of updates "
            "loss, kl, entropy, update.NAME; may be repeated.",
            show_default="return",
        ),
    ] = None,
    axis: Annotated[
        str,
        typer.Option("--axis", "-x", metavar="NAME", help="episodes, steps, updates or time."),
    ] = "episodes",
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="KEY", help="Runs that make one curve: of one name, run, or config.KEY."
        ),
    ] = "name",
    center: Annotated[
        str,
        typer.Option(
            "--center", metavar="NAME", help="Of several runs: mean, or iqm, their interquartile mean."
        ),
    ] = "mean",
    marks: Annotated[
        bool,
        typer.Option("--marks", help="Mark findings of the diagnosis, and new versions of the policy."),
    ] = False,
    where: Where = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: .png, .svg or .pdf.")
    ] = Path("curves.png"),
    names: Annotated[bool, typer.Option("--list", help="Print the names of what can be drawn.")] = False,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Draw learning curves, with a band over the runs of one name, such as seeds.

    Each run is averaged in up to 50 bins of the axis. The band of several runs is the 95 % interval of their
    mean: Student's t below 10 runs, a bootstrap from 10. One run has no band. Environments are not pooled.
    With --json, the points are printed, and no file is written.

    \b
    Examples:
      mttp plot runs/
      mttp plot runs/ -m return -m kl -x steps -o curves.svg
      mttp plot runs/ --by config.lr --center iqm
      mttp plot run.jsonl --marks
      mttp plot runs/ --list

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.study.curve_marks import marks_of
    from mttp.study.learning_curves import curves_of, metrics_of
    from mttp.tables import Database
    from mttp.viewing.diagnoses import diagnoses

    if out.suffix not in _FORMATS or not out.parent.is_dir():
        wanted = f"its name must end in {', '.join(_FORMATS)}, and its directory must exist"
        raise typer.BadParameter(f"{out} can't be written: {wanted}", param_hint="--out")
    traces = selection(paths, where) if where else None
    with progress(paths) as advance, Database(paths, traces=traces, progress=advance) as database:
        if names:
            known = metrics_of(database)
            print_json({"metrics": known}) if json else say("\n".join(map(visible, known)))
            return
        drawn = [
            curves_of(database, name, axis=axis, by=by, center=center)  # type: ignore[arg-type]  # it checks them
            for name in metric or ["return"]
        ]
        if marks:
            marked = marks_of(database, diagnoses(database, database.runs))
            drawn = [replace(each, marks=marked) for each in drawn]
        problems = database.problems
    if json:
        print_json({"curves": [each.to_dict() for each in drawn], "problems": problems})
    else:
        _write(drawn, out)
        say(f"wrote {visible(out)}")
        for each in drawn:
            for curve in each.curves:
                missing = f"; {count(curve.missing, 'episode')} without a value" if curve.missing else ""
                say(visible(f"  {each.metric}, {curve.name}: {curve.method}{missing}"))
        for mark in drawn[0].marks:
            say(visible(f"  marked: {mark.name}: {mark.text}"))
    finish(problems, strict=strict)


def _write(drawn: list[Curves], out: Path) -> None:
    """Draw the curves below each other and write the picture."""
    from mttp.errors import MissingExtra

    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(package="matplotlib", extra="plot", purpose="drawing curves") from error
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(drawn)), layout="constrained", dpi=_RESOLUTION)
    for curves, ax in zip(drawn, figure.subplots(len(drawn), squeeze=False)[:, 0], strict=True):
        curves.plot(ax)
    figure.savefig(out)
