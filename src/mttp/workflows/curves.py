"""Writes the curves of a recording to the tools that draw them."""

from __future__ import annotations

from typing import Final, cast

from mttp import transports
from mttp.errors import TransportError
from mttp.model.counting import LEFT_OUT
from mttp.model.curves import CURVE_ADDRESSES, UPDATE_NUMBERS, finite, points_of_update
from mttp.reading.recording import Recording
from mttp.reading.sources import Source
from mttp.tables import Database
from mttp.tables.opening import open_tables
from mttp.workflows.curve_transport import CurveTransport

__all__ = ["write_curves", "write_tables"]

_EPISODES: Final = f"""
SELECT
    episodes.run_id,
    coalesce(episodes.end_time, episodes.start_time) AS time,
    CASE WHEN return_counts THEN "return" END AS "episode/return",
    CASE WHEN counts THEN episodes.length END AS "episode/length",
    CASE WHEN counts THEN success END AS "episode/success",
    CASE WHEN reward_status <> 'missing' THEN
        (reward_status = 'error')::BIGINT
        + coalesce(
            len(list_filter(map_values(scorings.component_statuses), lambda status: status = 'error')), 0
        )
    END AS "episode/grader_errors",
    CASE WHEN counts THEN scorings.components END AS components
FROM episodes
LEFT JOIN scorings ON scorings.trace_id = episodes.trace_id AND scorings.span_id = reward_span_id
WHERE counts_reason NOT IN ({", ".join(f"'{reason}'" for reason in LEFT_OUT)})
ORDER BY episodes.start_time, episodes.trace_id
"""
"""The numbers of `mttp.model.curves.episode_curves`, with the components of the whole episode's reward."""
_UPDATES: Final = (
    f'SELECT run_id, end_time AS time, "index", {", ".join(UPDATE_NUMBERS)}, metrics '
    "FROM updates ORDER BY start_time, span_id"
)


def write_curves(source: Source | Recording, address: str) -> None:
    """
    Write the curves of episodes and updates to `tensorboard://DIRECTORY` or `wandb://[ENTITY/]PROJECT`.

    The curves are those that a session writes to the same address while it records: the return, length,
    success, components and grader errors of each episode, over the episodes of its run in order of start; and
    the loss, KL, entropy and metrics of each update, over its index. Each run has a run of its own there.
    They are read from the tables of the source.
    Raises TransportError for another address or if the tool can't be used, MissingExtra if its library or
    DuckDB is not installed, and ReadError if the source can't be read.
    """
    _check(address)
    with open_tables(source) as database:
        write_tables(database, address)


def _check(address: str) -> None:
    if not address.startswith(CURVE_ADDRESSES):
        known = " or ".join(f"{prefix}…" for prefix in CURVE_ADDRESSES)
        raise TransportError(f"{address!r} is not the address of a tool for curves; write {known}")


def write_tables(database: Database, address: str) -> tuple[int, int]:
    """Write the curves of a database, as `write_curves` does; return the numbers of episodes and updates."""
    _check(address)
    database.prepare(_EPISODES, _UPDATES)
    target = cast(CurveTransport, transports.open(address))
    try:
        for run in database.runs:
            target.name_run(run.id, run.name)
        episodes, updates = database.rows(_EPISODES), database.rows(_UPDATES)
        for row in episodes:
            run_id, time, components = row.pop("run_id"), row.pop("time"), row.pop("components") or {}
            points = row | {f"component/{name}": score for name, score in components.items()}
            target.add_points(run_id, finite(points), axis="episode", time=time)
        for row in updates:
            points = points_of_update(row, row["metrics"])
            target.add_points(row["run_id"], points, axis="update", index=row["index"], time=row["time"])
        target.flush()
    finally:
        target.shutdown()
    return len(episodes), len(updates)
