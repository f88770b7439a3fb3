"""`mttp rescore`: score recorded episodes by another reward spec."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from mttp.cli.files import beside, write_whole
from mttp.cli.output import Json, Trust, TrustModule, fail, print_json, print_page, progress, say, working
from mttp.errors import ConfigureError
from mttp.pages.scoring import rescored_headline, rescored_page

if TYPE_CHECKING:
    from mttp.study import RescoredRecording

__all__ = ["rescore"]


def rescore(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A recording: a file or a directory.")],
    *,
    spec: Annotated[Path, typer.Option("--spec", metavar="FILE", help="The new reward spec, YAML or JSON.")],
    write: Annotated[
        bool, typer.Option("--write", help="Add the new scores to the recording, in a file beside it.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the episodes with the new rewards as a new run."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 if a verdict flips or an episode has no valid reward."),
    ] = False,
    trust: Trust = False,
    trust_module: TrustModule = None,
    json: Json = False,
) -> None:
    """
    Score recorded episodes by another reward spec.

    Needs neither the model nor the environment: the inputs were recorded.
    Shows which rewards change, which verdicts flip, and which advantages within groups change their sign.

    \b
    Examples:
      mttp rescore runs/train.jsonl --spec specs/next.yaml
      mttp rescore runs/train.jsonl --spec specs/next.yaml --write
      mttp rescore runs/train.jsonl --spec specs/next.yaml --out next.jsonl

    \b
    Exit codes:
      0  Everything is fine.
      1  --strict, and a verdict flips or an episode has no valid reward.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.reading import read
    from mttp.study import rescore as rescored

    with progress([str(path)]) as advance:
        recording = read(path, progress=advance)
    with working(f"scoring {len(recording):,} episodes"):
        result = rescored(recording, spec=spec, trust=trust or trust_module or ())
    target = beside(path) if write else None
    if target is not None:
        write_whole(target, result.late_scores())
    if out is not None:
        _record(result, out)
    if json:
        print_json({**result.to_dict(), "file": target, "out": out})
    else:
        print_page(rescored_page(result))
        if target is not None:
            say(f"wrote {len(result.changes):,} scores to {target}")
        if out is not None:
            say(f"wrote {len(result.changes):,} episodes to {out}")
    fail([rescored_headline(result)] if strict and (result.flips or result.invalid) else [])


def _record(result: RescoredRecording, out: Path) -> None:
    """Write the episodes with the new rewards to a new file."""
    from mttp.recording.configuration import configure

    if out.exists():
        raise ConfigureError(f"{out} exists already; name another file by --out")
    with configure(f"file://{quote(str(out))}", run=f"rescored by {result.grader}", kind="replay"):
        result.record()
