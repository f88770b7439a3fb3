"""What an overview counts and draws of the table `episodes`: numbers by episode, slices, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from mttp.model.counting import LEFT_OUT
from mttp.model.curves import UPDATE_NUMBERS
from mttp.study.learning_curves import NUMBERS, finite
from mttp.tables.database import quoted
from mttp.tables.graders import Queryable

__all__ = [
    "SCORE",
    "UPDATES",
    "Figures",
    "Floats",
    "EpisodeDatabase",
    "figures",
    "groups",
    "known",
    "names",
    "slices",
    "update_figures",
]

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Figures: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
"""
Columns by name, with an entry for each episode that counts or is missing, in order of start.

Numbers that are missing, not finite or do not count are NaN. `components.NAME` are scores by component.
"""

_MOST_NAMES: Final = 12
"""Largest number of columns of components, of metrics, and of metadata."""
_MOST_GROUPS: Final = 5_000
_MOST_SLICES: Final = 200
SCORE: Final = 'coalesce(CASE WHEN reward_counts THEN reward END, CASE WHEN return_counts THEN "return" END)'
"""The reward of an episode, else its return; null if neither is known, or it does not count."""
_LARGEST = 1e150
"""Scores beyond are left out of deviations, since their squares are infinite."""


class EpisodeDatabase(Queryable, Protocol):
    """A database with the table `episodes`."""

    def arrays(self, query: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the columns of a query's result; a number that is null is NaN."""


_NUMBERS = ", ".join(
    f'{finite(expression, condition)}::DOUBLE AS "{name}"'
    for name, (condition, expression) in NUMBERS.items()
)
_LEFT_OUT = ", ".join(f"'{reason}'" for reason in LEFT_OUT)
_COUNTED = f"""
SELECT
    trace_id, run_id, start_time, outcome, reward_status, components,
    coalesce(env, '') AS env, nullif(env, '') AS environment, nullif(task, '') AS task,
    split, slices, policy_version, length AS steps,
    {_NUMBERS},
    -- A return from steps needs no reward, and an episode that did not end has none.
    (
        counts AND reward_status <> 'ok'
        AND NOT (reward_status = 'missing' AND {finite(*reversed(NUMBERS["return"]))} IS NOT NULL)
    )::DOUBLE AS invalid
FROM episodes
WHERE counts_reason NOT IN ({_LEFT_OUT})
"""
_WORDS = ("trace_id", "run_id", "start_time", "env", "steps", "outcome", "reward_status")
_COLUMNS = ", ".join(f'"{name}"' for name in (*_WORDS, *NUMBERS))


def figures(database: EpisodeDatabase) -> Figures:
    """Return the figures of the episodes that count or are missing."""
    scores = "".join(
        f", {finite(f'components[{quoted(name)}]')}::DOUBLE AS {_identifier(f'components.{name}')}"
        for name in names(database, "components")
    )
    numbers = f"SELECT {_COLUMNS}, invalid{scores} FROM ({_COUNTED})"
    return database.arrays(f"{numbers} ORDER BY start_time, trace_id")


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def names(database: EpisodeDatabase, column: str) -> list[str]:
    """Return the first keys of a column of maps, sorted."""
    query = (
        f"SELECT DISTINCT unnest(map_keys({column})) AS name FROM episodes ORDER BY name LIMIT {_MOST_NAMES}"
    )
    return [row["name"] for row in database.rows(query)]


def slices(database: EpisodeDatabase, column: str, *, by_environment: bool = False) -> list[dict[str, Any]]:
    """
    Return the means of the episodes with the same value of a column, the lowest return first.

    The rows have the number of all slices as `number`; `by_environment` keeps environments apart.
    """
    label = f"unnest({column})" if column == "slices" else column
    if by_environment:
        label = f"CASE WHEN {column} IS NOT NULL THEN concat_ws(', ', environment, {label}) END"
    return database.rows(f"""
        SELECT
            label, count(*) AS episodes, favg("return") AS "return", favg(reward) AS reward,
            favg(success) AS success, favg(length) AS length, sum(invalid)::BIGINT AS invalid,
            arg_min(trace_id, (coalesce("return", 'inf'::DOUBLE), start_time, trace_id)) AS example,
            count(*) OVER () AS number
        FROM (SELECT *, {label} AS label FROM ({_COUNTED}))
        WHERE label IS NOT NULL
        GROUP BY label
        ORDER BY favg("return") NULLS LAST, label
        LIMIT {_MOST_SLICES}
    """)


def groups(
    database: EpisodeDatabase, condition: str = "true", parameters: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """
    Return the last groups in order of start, with the scores and advantages of their members.

    `condition` is SQL over the table `episodes`, with `parameters` by name.
    """
    return database.rows(
        f"""
        FROM (
            SELECT
                "group" AS id, any_value(task) AS task, min(start_time) AS start,
                list(trace_id ORDER BY start_time, trace_id) AS episodes,
                list(score ORDER BY start_time, trace_id) AS rewards,
                list(advantage ORDER BY start_time, trace_id) AS advantages,
                count(score) AS valid, favg(score) AS mean,
                stddev_samp(CASE WHEN abs(score) < {_LARGEST} THEN score END) AS deviation
            FROM (SELECT *, {SCORE} AS score FROM episodes)
            WHERE "group" IS NOT NULL AND {condition}
            GROUP BY run_id, "group"
            ORDER BY start DESC, id
            LIMIT {_MOST_GROUPS}
        )
        ORDER BY start, id
        """,
        parameters,
    )


UPDATES: Final = f"""
SELECT
    run_id, start_time, policy,
    coalesce("index", row_number() OVER (PARTITION BY run_id ORDER BY start_time, span_id) - 1) AS "index",
    {", ".join(UPDATE_NUMBERS)},
    metrics, policy_version_before, policy_version_after, groups, episodes, consumed, discarded,
    discarded_episodes, sampled_versions, lag_min, lag_max, faults
FROM updates
ORDER BY start_time, span_id
"""
"""The updates, in order of start; one without an index has its place in the run."""


def update_figures(updates: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the rows of `UPDATES` as columns; `metrics.NAME` are the user's numbers, the first of them."""
    metrics = dict.fromkeys(name for row in updates for name in row["metrics"] or {})
    columns = {name: [row[name] for row in updates] for name in ("index", *UPDATE_NUMBERS)}
    columns |= {
        f"metrics.{name}": [(row["metrics"] or {}).get(name) for row in updates]
        for name in [*metrics][:_MOST_NAMES]
    }
    return {
        "run_id": np.array([row["run_id"] for row in updates], str),
        "start_time": np.array([row["start_time"] for row in updates], np.int64),
        **{name: np.array(values, float) for name, values in columns.items()},
    }


def known(values: Floats) -> Floats:
    """Return the values that are not NaN."""
    return values[~np.isnan(values)]
