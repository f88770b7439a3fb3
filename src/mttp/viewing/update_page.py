"""The page of an update: its numbers, its groups and episodes, and what was discarded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.errors import ReadError
from mttp.model.curves import UPDATE_NUMBERS
from mttp.pages.blocks import Block, column, fact, facts, note, section, table
from mttp.pages.groups import groups_table
from mttp.viewing.figures import EpisodeDatabase, groups

__all__ = ["update_page", "updates_table"]

_MOST_ROWS = 200
_MOST_EPISODES = 20
"""Number of discarded episodes of a reason that can be opened."""


def updates_table(updates: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Block | None:
    """Return the last updates, the newest first; `names` are the runs' names by id."""
    shown = [name for name in UPDATE_NUMBERS if any(row[name] is not None for row in updates)]
    columns = [
        column("update", kind="update"),
        *([column("run", kind="run")] if len(names) > 1 else ()),
        *(column(name, kind="number") for name in shown),
        column("groups", kind="number"),
        column("trained", "episodes", "number", help="number of episodes that it trained on"),
        column("discarded", kind="number", help="number of episodes that it discarded"),
    ]
    rows = [
        [
            _address(row),
            *([f"{row['run_id']} {names.get(row['run_id'], '')}".strip()] if len(names) > 1 else ()),
            *(row[name] for name in shown),
            *(len(row["groups"]), row["consumed"], sum(row["discarded"].values())),
        ]
        for row in updates[: -_MOST_ROWS - 1 : -1]
    ]
    left_out = len(updates) - len(rows)
    more = f" {left_out:,} earlier ones are not shown." if left_out else ""
    return table("Updates", columns, rows, f"The last one first.{more}", is_folded=True)


def _address(row: Mapping[str, Any]) -> str:
    """Return run and index of an update, as a cell of the kind `update`."""
    return f"{row['run_id']} {row['index']}"


def update_page(
    database: EpisodeDatabase,
    updates: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
    run_id: str,
    index: int,
) -> dict[str, Any]:
    """
    Return the page of an update of a run, as `viewer/src/data.ts` describes it.

    `updates` are the rows of `UPDATES`. Raises ReadError if there is no such update.
    """
    of_run = [row for row in updates if row["run_id"] == run_id]
    rows = [row for row in of_run if row["index"] == index]
    if not rows:
        raise ReadError(f"there is no update {index} of the run {run_id}")
    indices = sorted({row["index"] for row in of_run})
    place = indices.index(index)
    return {
        "title": f"Update {index} of {names.get(run_id) or run_id}",
        "run": run_id,
        "index": index,
        "previous": indices[place - 1] if place else None,
        "next": indices[place + 1] if place + 1 < len(indices) else None,
        "sections": [each for row in rows for each in _sections(database, row) if each is not None],
    }


def _sections(database: EpisodeDatabase, row: Mapping[str, Any]) -> list[Block | None]:
    of_policy = f" of {row['policy']}" if row["policy"] else ""
    faults = [note(fault, "warn") for fault in row["faults"]]
    return [
        section("numbers", f"Numbers{of_policy}", [facts(_numbers(row)), *faults]),
        section("groups", "Groups", [*_groups(database, row)]),
        section("episodes", "Episodes", [_episodes(database, row["episodes"])]),
        section("discarded", "Discarded", [_discarded(row)]),
    ]


def _numbers(row: Mapping[str, Any]) -> list[Block]:
    numbers = {name.replace("_", " "): row[name] for name in UPDATE_NUMBERS} | (row["metrics"] or {})
    versions = [row["policy_version_before"], row["policy_version_after"]]
    others = {
        "episodes trained on": row["consumed"],
        "policy version": " → ".join(map(str, filter(None, versions))) or None,
        "sampled versions": " to ".join(row["sampled_versions"] or ()) or None,
        "lag": None if row["lag_min"] is None else f"{row['lag_min']} to {row['lag_max']} updates",
    }
    return [_number(name, value) for name, value in numbers.items() if value is not None] + [
        fact(name, value) for name, value in others.items() if value is not None
    ]


def _number(name: str, value: float) -> Block:
    if math.isfinite(value):
        return fact(name, value)
    return fact(name, str(value), state="bad")


def _groups(database: EpisodeDatabase, row: Mapping[str, Any]) -> list[Block | None]:
    group_ids = [*row["groups"]]
    if not group_ids:
        return []
    rows = groups(
        database,
        'run_id = $run AND "group" IN (SELECT unnest($groups::VARCHAR[]))',
        {"run": row["run_id"], "groups": group_ids},
    )
    missing = len({*group_ids} - {each["id"] for each in rows})
    absent = (
        note(f"Of {len(group_ids):,} groups {missing:,} have no episode here.", "warn") if missing else None
    )
    return [groups_table(rows, most=_MOST_ROWS), absent]


def _episodes(database: EpisodeDatabase, trace_ids: Sequence[str]) -> Block | None:
    """Return the episodes that were trained on outside of groups."""
    if not trace_ids:
        return None
    query = (
        'SELECT trace_id, task, outcome, "return", reward, length FROM episodes '
        "WHERE trace_id IN (SELECT unnest($trace_ids::VARCHAR[])) ORDER BY start_time, trace_id"
    )
    rows = [[*row.values()] for row in database.rows(query, {"trace_ids": [*trace_ids]})]
    columns = [
        column("episode", kind="episode"),
        column("task"),
        column("outcome", kind="state"),
        *(column(name, kind="number") for name in ("return", "reward", "length")),
    ]
    left_out = len(rows) - _MOST_ROWS
    more = f"{left_out:,} more are not shown." if left_out > 0 else ""
    return table("", columns, rows[:_MOST_ROWS], more)


def _discarded(row: Mapping[str, Any]) -> Block | None:
    """Return the number of discarded episodes by reason, and those that are named."""
    named = json.loads(row["discarded_episodes"] or "{}")
    columns = [column("reason"), column("number", "episodes", "number"), column("examples", kind="episodes")]
    rows = [
        [reason, number, " ".join(named.get(reason, ())[:_MOST_EPISODES])]
        for reason, number in row["discarded"].items()
    ]
    return table("", columns, rows)
