"""`mttp show`: the episodes of a recording, or one episode in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.conditions import predicate
from mttp.cli.output import Json, Markdown, Sources, Strict, console, finish, print_json, print_page, progress
from mttp.errors import ReadError

if TYPE_CHECKING:
    from mttp.model.episodes import Episode
    from mttp.reading import Recording
    from mttp.tables import Database

__all__ = ["show"]

_LIMIT = 20
_END = 60
"""Number of characters of prompt and completion that a list shows."""
_PICKS = ("last", "best", "worst")
_TRUSTED = ("ok", "missing")
"""Reward statuses with a valid return; without a reward, the return may be the sum of step rewards."""


class Sort(str, Enum):
    """Values of `--sort`."""

    START = "start"
    RETURN = "return"
    REWARD = "reward"
    LENGTH = "length"
    DURATION = "duration"


def show(
    paths: Sources,
    *,
    episode: Annotated[
        str | None,
        typer.Option(
            "--episode",
            metavar="ID",
            help="Show one episode: a prefix of its trace id, or last, best or worst (by return).",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="With --episode: show all steps, and do not shorten text.")
    ] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="Only episodes that match: a column, one of = != < <= > >= ~, and a value, or SQL; "
            "may be repeated.",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only episodes of this run, by id or name.")
    ] = None,
    env: Annotated[
        str | None, typer.Option("--env", metavar="ID", help="Only episodes of this environment.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="Only episodes of this task.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="Only episodes with this outcome: success, failure or unknown.",
        ),
    ] = None,
    sort: Annotated[
        Sort,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            help="Sort episodes in ascending order: start, return, reward, length or duration.",
        ),
    ] = Sort.START,
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort in descending order.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="Number of rows, or of steps with --episode; 0 shows all.",
            show_default="20",
        ),
    ] = None,
    markdown: Markdown = False,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """
    Show the episodes of a recording, or one episode in full.

    Without --episode, prints a table of the runs and a table of the episodes. With --episode, prints that
    episode: its conversation, then its rewards, group, curves and facts.
    With --json, --limit defaults to all.

    A condition compares a column with a value. The columns are episode, run, env, task, split, slice,
    group, policy, status, outcome,
    stop_reason, error_type, fault, spec, spec_version, verdict, failed_check, reward_status, reward, return,
    length, duration, advantage, cost_usd, seed, terminated, truncated, complete, start,
    metrics.NAME, metadata.NAME and components.NAME. ~ searches for a regular expression; none matches a
    missing value. Anything else is SQL over the columns of `mttp sql PATH episodes`, prompt and completion
    among them.

    \b
    Examples:
      mttp show runs/cartpole.jsonl
      mttp show runs/ --where status=error --where 'return<0.5'
      mttp show runs/ --where "reward > 0.5 and completion like '%sorry%'"
      mttp show runs/ --task train/17 --sort reward --reverse --limit 5
      mttp show runs/cartpole.jsonl --episode 4bf92f35
      mttp show runs/ --env support-desk --episode worst --full
      mttp show runs/cartpole.jsonl --json | jq '.episodes[].return'

    \b
    Exit codes:
      0  Everything is fine.
      1  The recording has problems, and --strict is given.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.reading import read

    if full and episode is None:
        raise typer.BadParameter("--full needs --episode")
    holds = predicate(paths, where)
    words = {"env": env, "task": task, "outcome": outcome, "run": run}
    with progress(paths) as advance:
        recording = read(paths, progress=advance)
    _check_run(recording, run)
    matching = recording.filter(holds, **words)
    if episode is not None:
        picked = _picked(matching, episode, of=len(recording))
        rows = 0 if full and limit is None else limit
        _show_one(recording, picked, limit=rows, full=full, markdown=markdown, json=json)
    elif json:
        _print_document(matching, _ordered(matching.episodes, sort, reverse=reverse), limit)
    else:
        _print_tables(matching, _ordered(matching.episodes, sort, reverse=reverse), limit, of=len(recording))
    finish(recording.problems, strict=strict)


def _check_run(recording: Recording, name: str | None) -> None:
    """Raise ReadError if no run has this id or name."""
    known = {run.id for run in recording.runs} | {episode.run_id for episode in recording}
    if name is not None and name not in known | {run.name for run in recording.runs}:
        there = ", ".join(sorted(known)) or "none"
        raise ReadError(f"no run has the id or name {name!r}; the runs are {there}")


def _picked(recording: Recording, name: str, *, of: int) -> Episode:
    """
    Return the episode by a prefix of its trace id, or the last, best or worst one.

    `of` is the number of episodes before the conditions.
    """
    if name not in _PICKS:
        return recording.episode(name)
    episodes = recording.episodes
    if not episodes:
        why = f"none of {of:,} matches the conditions" if of else "the recording has no episodes"
        raise ReadError(f"there is no {name} episode: {why}")
    if name == "last":
        return episodes[-1]
    rewarded = [each for each in episodes if _is_number(each.return_) and each.reward.status in _TRUSTED]
    if not rewarded:
        raise ReadError(f"there is no {name} episode: none of {len(episodes):,} has a valid return")
    return sorted(rewarded, key=lambda each: each.return_ or 0.0, reverse=name == "best")[0]


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _show_one(
    recording: Recording, episode: Episode, *, limit: int | None, full: bool, markdown: bool, json: bool
) -> None:
    from mttp.cli.rendering.episodes import document
    from mttp.pages.blocks import note
    from mttp.pages.episode import page, title
    from mttp.reading.jsonable import jsonable

    if json:
        steps = jsonable(episode.steps[: limit or None])
        print_json(document(episode) | {"steps": steps})
    else:
        group = next((group for group in recording.groups if episode.trace_id in group.episodes), None)
        blocks = [note(title(episode)), *page(episode, group=group, limit=_rows(limit))]
        print_page(blocks, markdown=markdown, everything=full)


def _ordered(episodes: Sequence[Episode], sort: Sort, *, reverse: bool) -> list[Episode]:
    from mttp.cli.rendering.episodes import sorted_by

    return sorted_by(episodes, sort.value, reverse=reverse)


def _print_document(recording: Recording, episodes: Sequence[Episode], limit: int | None) -> None:
    from mttp.cli.rendering.episodes import document
    from mttp.pages.graders import documents as of_graders

    summary = recording.summary()
    names = ("runs", "groups", "updates", "annotations", "evals")
    facts = {name: getattr(recording, name) for name in names}
    facts |= {"graders": of_graders(summary.graders, len(summary)), "faults": summary.faults}
    documents = [document(episode) for episode in episodes[: limit or None]]
    print_json(facts | {"episodes": documents, "problems": recording.problems})


def _print_tables(recording: Recording, episodes: Sequence[Episode], limit: int | None, *, of: int) -> None:
    from mttp.cli.rendering.episodes import episodes_table, runs_table
    from mttp.pages.blocks import note, problems
    from mttp.pages.graders import documents, graders_table
    from mttp.pages.groups import groups_page
    from mttp.pages.words import count, counted, shares
    from mttp.tables.summary import SUMMARY
    from mttp.viewing.figures import groups

    recording.tables.prepare(*SUMMARY, content=True)
    summary = recording.summary()
    out = console()
    if recording.runs:
        out.print(runs_table(recording.runs, limit=_rows(limit)), "")
    if len(episodes) < of:
        out.print(f"{len(episodes):,} of {count(of, 'episode')}", "", sep="\n")
    if episodes:
        texts = _ends(recording.tables, [each.trace_id for each in episodes[: _rows(limit)]])
        out.print(episodes_table(episodes, limit=_rows(limit), texts=texts))
    elif not of:
        out.print("no episodes")
    others = {"group": len(recording.groups), "update": len(recording.updates)}
    others |= {"annotation": len(recording.annotations), "evaluation": len(recording.evals)}
    failed = any(health.failed for health in summary.graders)
    health = graders_table(documents(summary.graders, len(summary))) if failed else None
    blocks = [note(", ".join(counted(others))) if any(others.values()) else None, health]
    if summary.invalid_step_rewards:
        blocks.append(note(f"invalid step rewards: {summary.invalid_step_rewards:,}", "bad"))
    if summary.faults:
        blocks.append(note(f"faults: {shares(summary.faults)}", "bad"))
    blocks.append(problems(recording.problems))
    if recording.groups:
        blocks.append(groups_page(groups(recording.tables), most=_rows(limit)))
    if any(blocks):
        out.print()
        print_page(blocks)


def _ends(database: Database, trace_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the ends of prompt and completion by trace id."""
    ends = ", ".join(
        f"right(regexp_replace(trim({name}), '\\s+', ' ', 'g'), {_END}) AS {name}"
        for name in ("prompt", "completion")
    )
    query = f"SELECT trace_id, {ends} FROM episodes WHERE trace_id IN (SELECT unnest($trace_ids::VARCHAR[]))"
    return {row.pop("trace_id"): row for row in database.rows(query, {"trace_ids": [*trace_ids]})}


def _rows(limit: int | None) -> int | None:
    """Return the number of rows to show; None shows all."""
    return _LIMIT if limit is None else limit or None
