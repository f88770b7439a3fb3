"""Which spans and episodes a database lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mttp.tables.database import Database

if TYPE_CHECKING:
    from mttp.model.episodes import Run

__all__ = ["COMPLETENESS", "complete_runs"]

COMPLETENESS: Final = """
SELECT
    episodes.trace_id,
    any_value(episodes.steps) AS steps,
    any_value(episodes.status) = 'unfinished' AS has_no_end,
    list(
        {'segment': coalesce(segment, ''), 'found': found, 'recorded': recorded} ORDER BY segment NULLS FIRST
    ) FILTER (coalesce(found < recorded, true)) AS parts
FROM episodes
JOIN parts USING (trace_id)
WHERE NOT complete
GROUP BY episodes.trace_id
ORDER BY any_value(episodes.start_time), episodes.trace_id
"""
"""The episodes that lack spans."""
_BY_RUN = "SELECT run_id, count(*) AS number FROM episodes GROUP BY run_id"


def complete_runs(database: Database) -> list[Run]:
    """Return the runs, and add the problems of episodes that lack spans, and of runs that lack episodes."""
    database.prepare(COMPLETENESS)
    for row in database.rows(COMPLETENESS):
        trace_id = row["trace_id"]
        if row["has_no_end"]:
            message = f"episode {trace_id} has no end: {row['steps']} steps were found"
            database.add_problem("unfinished_episode", message, trace_id=trace_id)
        else:
            message = f"episode {trace_id} lacks spans: {', '.join(map(_lacking, row['parts'] or ()))}"
            database.add_problem("incomplete_episode", message, trace_id=trace_id)
    runs = database.runs
    by_run = {row["run_id"]: row["number"] for row in database.rows(_BY_RUN)}
    database.add_missing_episodes(runs, by_run)
    return runs


def _lacking(part: Mapping[str, Any]) -> str:
    where = f" of segment {part['segment']}" if part["segment"] else ""
    if part["recorded"] is None:
        return f"the end{where} was not found"
    return f"{part['found']} of {part['recorded']}{where} were found"
