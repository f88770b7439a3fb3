"""`mttp annotate`: what people and judges found out afterwards, written beside the episodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from mttp.cli.files import beside, write_whole
from mttp.cli.output import Json, print_json, progress, say
from mttp.cli.report.words import count, visible
from mttp.codec import annotations as codec
from mttp.errors import ConfigureError
from mttp.model import ids
from mttp.model.episodes import Annotation
from mttp.model.spans import Link, Scope, SpanRecord
from mttp.model.version import __version__
from mttp.reading import labels
from mttp.reading.scanning import Scan
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["annotate"]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Bad:
    """A row that can't be written."""

    place: str
    """Where it stands."""
    message: str
    """What is wrong with it."""


def annotate(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A recording: a file or a directory.")],
    episode: Annotated[
        str, typer.Argument(metavar="[ID]", help="One episode: the beginning of its trace id; see --set.")
    ] = "",
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Labels: a .csv file, or .jsonl with an object per line."
        ),
    ] = None,
    facts: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="States this of the one episode; may be repeated."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="STEP", help="The step of the one episode: its index or span id."),
    ] = None,
    explanation: Annotated[
        str | None, typer.Option("--explanation", metavar="WHY", help="Why, for the one episode.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who states it, where the row does not say so.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows that are wrong.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and write nothing.")] = False,
    json: Json = False,
) -> None:
    """
    Write scores, outcomes, labels and comments into a recording.

    Each row of the labels has the beginning of an episode's trace_id, maybe a step, and what it states:
    the columns key and value, or a column each for score, outcome, advantage, label, comment
    and whatever facts of your own; also by or grader, and explanation.
    Everything is checked first; the episodes' own files stay as they are.

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
    stated, bad = _stated(rows, by)
    with progress([str(path)]) as advance:
        scan = Scan(path, arrays=False, progress=advance)
        known = labels.known(scan, [annotation for _, annotation in stated])
    annotations: list[Annotation] = []
    for row, annotation in stated:
        try:
            annotations.append(known.resolve(annotation))
        except ValueError as error:
            bad.append(_Bad(row.place, str(error)))
    _refuse(bad, rows, skip_bad=skip_bad)
    if not annotations:
        raise ConfigureError("there is nothing to write: no row states anything")
    if not dry_run:
        write_whole(target, list(_records(annotations, known)))
    _tell(annotations, bad, None if dry_run else target, json=json)


def _rows(
    source: Path | None,
    episode: str,
    facts: Sequence[str] | None,
    step: str | None,
    explanation: str | None,
) -> list[labels.LabelRow]:
    """The rows of the labels, or the one row that the arguments are."""
    if source is not None:
        if episode or facts or step or explanation:
            raise ConfigureError("--from says it all: leave out ID, --set, --step and --explanation")
        return labels.rows(source)
    if not episode or not facts:
        raise ConfigureError(
            "give the labels, --from FILE, or one episode and what to state: ID --set KEY=VALUE"
        )
    about = {"trace_id": episode, "step": step, "explanation": explanation}
    about = {name: said for name, said in about.items() if said is not None}
    rows = []
    for fact in facts:
        key, _, value = fact.partition("=")
        if not key or not value:
            raise ConfigureError(f"--set {fact!r} is not KEY=VALUE")
        rows.append(labels.LabelRow("--set", {**about, "key": key, "value": value}))
    return rows


def _stated(
    rows: Sequence[labels.LabelRow], by: str | None
) -> tuple[list[tuple[labels.LabelRow, Annotation]], list[_Bad]]:
    """What each row states, and the rows that make no sense."""
    stated: list[tuple[labels.LabelRow, Annotation]] = []
    bad: list[_Bad] = []
    for row in rows:
        try:
            stated += [(row, annotation) for annotation in labels.stated(row, by=by)]
        except ValueError as error:
            bad.append(_Bad(row.place, str(error)))
    return stated, bad


def _refuse(bad: Sequence[_Bad], rows: Sequence[labels.LabelRow], *, skip_bad: bool) -> None:
    """Say what is wrong; raise where that was not to be left out."""
    for found in bad[:_SHOWN]:
        say(visible(f"{found.place}: {found.message}"), error=True)
    if len(bad) > _SHOWN:
        say(f"… and {len(bad) - _SHOWN:,} more", error=True)
    if bad and not skip_bad:
        wrong = len({found.place for found in bad})
        raise ConfigureError(
            f"{wrong:,} of {count(len(rows), 'row')} can't be written, so nothing was; "
            "correct what is wrong, or leave it out with --skip-bad"
        )


def _records(annotations: Sequence[Annotation], known: labels.KnownIds) -> Iterator[SpanRecord]:
    """A span per annotation, in the run of the episode that it is about; later rows have higher revisions."""
    scopes: dict[str, Scope] = {}
    now = time.time_ns()
    for position, annotation in enumerate(annotations):
        run_id = annotation.run_id
        resource = {a.SERVICE_NAME: "mttp", a.RUN_ID: run_id}
        scope = scopes.setdefault(
            run_id, Scope(name="mttp", version=__version__, schema_url=SCHEMA_URL, resource=resource)
        )
        place = annotation.step_span_id or known.roots.get(annotation.episode, "")
        yield SpanRecord(
            trace_id=f"{ids.trace_id():032x}",
            span_id=f"{ids.span_id():016x}",
            name=names.ANNOTATE,
            start_time=now + position,
            end_time=now + position,
            attributes=codec.encode(replace(annotation, revision=now + position), []),
            links=[Link(annotation.episode, place, {})] if place else (),
            scope=scope,
        )


def _tell(annotations: Sequence[Annotation], bad: Sequence[_Bad], target: Path | None, *, json: bool) -> None:
    episodes = len({annotation.episode for annotation in annotations})
    if json:
        print_json({"annotations": len(annotations), "episodes": episodes, "file": target, "skipped": bad})
        return
    what = f"{count(len(annotations), 'annotation')} of {count(episodes, 'episode')}"
    say(f"would write {what}" if target is None else f"wrote {what} to {target}")
