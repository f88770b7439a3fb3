"""`mttp show`: the episodes of a recording, or one of them in full."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.console import Console

from mttp.cli.output import Json, Sources, Strict, console, finish, print_json, progress
from mttp.reading import Recording, read
from mttp.reading.jsonable import jsonable
from mttp.report.episodes import document, episodes_table, runs_table, sorted_by
from mttp.report.problems import problem_lines
from mttp.report.tree import tree
from mttp.report.words import counted

__all__ = ["show"]

_LIMIT = 20


class Sort(str, Enum):
    """What `--sort` takes."""

    START = "start"
    RETURN = "return"
    LENGTH = "length"
    DURATION = "duration"


def show(
    paths: Sources,
    *,
    episode: Annotated[
        str | None,
        typer.Option("--episode", metavar="ID", help="Show this one: the beginning of its trace id."),
    ] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="Order of the episodes, lowest first.")] = Sort.START,
    reverse: Annotated[bool, typer.Option("--reverse", help="Highest first.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help="Rows, or steps of the one episode, to show; 0 is all.", show_default="20"
        ),
    ] = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Show a recording's episodes, or one in full.

    Without --episode, a table of the runs and one of the episodes; with it, that episode as a tree:
    its steps with observations, actions, rewards and their components, tokens, calls,
    errors and faults. With --json there is no limit unless one is given.

    \b
    Examples:
      mttp show runs/cartpole.jsonl
      mttp show runs/ --sort return --limit 5
      mttp show runs/cartpole.jsonl --episode 4bf92f35
      mttp show runs/cartpole.jsonl --json | jq '.episodes[].return'

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    with progress(paths) as advance:
        recording = read(paths, progress=advance)
    if episode is not None:
        _show_one(recording, episode, limit=limit, json=json)
    else:
        _show_all(recording, sort.value, reverse=reverse, limit=limit, json=json)
    finish(recording.problems, strict=strict)


def _show_one(recording: Recording, prefix: str, *, limit: int | None, json: bool) -> None:
    found = recording.episode(prefix)
    if json:
        steps = jsonable(found.steps[: limit or None])
        print_json(document(found) | {"steps": steps})
    else:
        console().print(tree(found, limit=_rows(limit)))


def _show_all(recording: Recording, sort: str, *, reverse: bool, limit: int | None, json: bool) -> None:
    episodes = sorted_by(recording.episodes, sort, reverse=reverse)
    if json:
        shown = [document(episode) for episode in episodes[: limit or None]]
        names = ("runs", "groups", "updates", "annotations", "evals")
        facts = {name: getattr(recording, name) for name in names}
        print_json(facts | {"episodes": shown, "problems": recording.problems})
        return
    out = console()
    if recording.runs:
        out.print(runs_table(recording.runs, limit=_rows(limit)), "")
    out.print(episodes_table(episodes, limit=_rows(limit)) if episodes else "no episodes")
    apart = {"group": len(recording.groups), "update": len(recording.updates)}
    apart |= {"annotation": len(recording.annotations), "evaluation": len(recording.evals)}
    if counts := counted(apart):
        out.print("", ", ".join(counts), sep="\n")
    _print_problems(out, recording)


def _print_problems(out: Console, recording: Recording) -> None:
    if recording.problems:
        out.print("", problem_lines(recording.problems), sep="\n")


def _rows(limit: int | None) -> int | None:
    """How many to show, None being all."""
    return _LIMIT if limit is None else limit or None
