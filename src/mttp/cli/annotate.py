"""`mttp annotate`: add annotations from people and judges to a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.files import beside, late_facts, write_whole
from mttp.cli.output import Json, print_json, progress, say
from mttp.errors import ConfigureError
from mttp.model.episodes import Annotation
from mttp.pages.words import count, visible
from mttp.reading import labels
from mttp.reading.scanning import Scan

__all__ = ["annotate"]

_MOST = 20
"""Number of invalid rows that are printed."""


@dataclass(frozen=True, slots=True)
class _InvalidRow:
    """A row that can't be written."""

    place: str
    """File and line of the row."""
    message: str
    """Why it can't be written."""


def annotate(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A recording: a file or a directory.")],
    episode: Annotated[
        str, typer.Argument(metavar="[ID]", help="One episode, by a prefix of its trace id; needs --set.")
    ] = "",
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="File of labels: .csv, or .jsonl with one object per line."
        ),
    ] = None,
    facts: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Annotate the episode ID with this value; may be repeated."
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            "--step", metavar="STEP", help="Annotate this step of the episode ID: its index or span id."
        ),
    ] = None,
    explanation: Annotated[
        str | None, typer.Option("--explanation", metavar="WHY", help="Explanation of the values of --set.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Author of the annotations, for rows that name none."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid rows.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all rows and write nothing.")] = False,
    json: Json = False,
) -> None:
    """
    Add scores, outcomes, labels and comments to a recording.

    Each row of the labels has a prefix of an episode's trace_id, optionally a step, and values: either the
    columns key and value, or one column per value, such as score, outcome, advantage, label, comment or a
    name of your own. Optional columns are by or grader, and explanation.
    All rows are checked before any is written. The annotations go to a new file; existing files do not
    change.

    \b
    Examples:
      mttp annotate runs/ --from labels.csv --by reviewer@example.com
      mttp annotate runs/cartpole.jsonl --from judged.jsonl --dry-run
      mttp annotate runs/ 4bf92f35 --set score=0.7 --set comment="lucky" --by me

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, or input that can't be read.
    """
    rows = _rows(source, episode, facts, step, explanation)
    target = beside(path)
    parsed, invalid = _parse(rows, by)
    with progress([str(path)]) as advance:
        scan = Scan(path, arrays=False, progress=advance)
        known = labels.known(scan, [annotation for _, annotation in parsed])
    annotations: list[Annotation] = []
    for row, annotation in parsed:
        try:
            annotations.append(known.resolve(annotation))
        except ValueError as error:
            invalid.append(_InvalidRow(row.place, str(error)))
    _report_invalid(invalid, rows, skip=skip_bad)
    if not annotations:
        raise ConfigureError("there is nothing to write: no row has a value")
    if not dry_run:
        write_whole(target, list(late_facts(annotations, known)))
    _print_result(annotations, invalid, None if dry_run else target, json=json)


def _rows(
    source: Path | None,
    episode: str,
    facts: Sequence[str] | None,
    step: str | None,
    explanation: str | None,
) -> list[labels.LabelRow]:
    """Return the rows of the labels file, or the rows that the arguments give."""
    if source is not None:
        if episode or facts or step or explanation:
            raise ConfigureError("--from can't be combined with ID, --set, --step or --explanation")
        return labels.rows(source)
    if not episode or not facts:
        raise ConfigureError(
            "give a file of labels (--from FILE), or one episode and its values (ID --set KEY=VALUE)"
        )
    about = {"trace_id": episode, "step": step, "explanation": explanation}
    about = {name: value for name, value in about.items() if value is not None}
    rows = []
    for fact in facts:
        key, _, value = fact.partition("=")
        if not key or not value:
            raise ConfigureError(f"--set {fact!r} is not KEY=VALUE")
        rows.append(labels.LabelRow("--set", {**about, "key": key, "value": value}))
    return rows


def _parse(
    rows: Sequence[labels.LabelRow], by: str | None
) -> tuple[list[tuple[labels.LabelRow, Annotation]], list[_InvalidRow]]:
    """Return the annotations of the valid rows, and the invalid rows."""
    parsed: list[tuple[labels.LabelRow, Annotation]] = []
    invalid: list[_InvalidRow] = []
    for row in rows:
        try:
            parsed += [(row, annotation) for annotation in labels.stated(row, by=by)]
        except ValueError as error:
            invalid.append(_InvalidRow(row.place, str(error)))
    return parsed, invalid


def _report_invalid(invalid: Sequence[_InvalidRow], rows: Sequence[labels.LabelRow], *, skip: bool) -> None:
    """Print the invalid rows; raise ConfigureError unless they are skipped."""
    for row in invalid[:_MOST]:
        say(visible(f"{row.place}: {row.message}"), error=True)
    if len(invalid) > _MOST:
        say(f"… and {len(invalid) - _MOST:,} more", error=True)
    if invalid and not skip:
        places = len({row.place for row in invalid})
        raise ConfigureError(
            f"{places:,} of {count(len(rows), 'row')} can't be written, so nothing was written; "
            "correct these rows, or skip them with --skip-bad"
        )


def _print_result(
    annotations: Sequence[Annotation], invalid: Sequence[_InvalidRow], target: Path | None, *, json: bool
) -> None:
    episodes = len({annotation.episode for annotation in annotations})
    if json:
        print_json(
            {"annotations": len(annotations), "episodes": episodes, "file": target, "skipped": invalid}
        )
        return
    what = f"{count(len(annotations), 'annotation')} of {count(episodes, 'episode')}"
    say(f"would write {what}" if target is None else f"wrote {what} to {target}")
