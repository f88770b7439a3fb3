"""The query that selects traces from a table of spans, in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mttp.errors import MissingExtra
from mttp.reading.engines.address import Selection
from mttp.semconv import attributes as a

__all__ = ["FACTS", "LISTS", "one_of", "texts", "traces_of", "translated"]

_FIELDS: Final = {"env": a.ENV_ID, "task": a.TASK_ID, "split": a.TASK_SPLIT}
"""Attributes of episodes by the option that selects by them."""
_NOT_OF_RUNS: Final = (a.EPISODE_ID, a.GROUP_ID, a.ANNOTATION_TARGET_TRACE_ID, a.COMPONENT_NAME)
"""Attributes, any of which a span has that is not about its run as a whole."""
LISTS: Final = (a.TASK_SLICES, a.GROUP_EPISODES, a.ANNOTATION_REJECTED_TRACE_IDS)
"""Attributes that the query needs, and that are lists of texts."""
FACTS: Final = (a.RUN_ID, *_NOT_OF_RUNS, *_FIELDS.values())
"""Other attributes that the query needs; it also needs the columns `trace_id`, `run` and `start_time`."""
_SELECTED: Final = f"""
WITH facts AS (SELECT {{columns}}, coalesce(spans.run, '') AS run FROM spans),
chosen AS (
    SELECT trace_id, max(facts.run) AS run FROM facts
    WHERE "{a.EPISODE_ID}" IS NOT NULL{{conditions}}
    GROUP BY trace_id
    HAVING count(*) > 0{{holds}}
),
named AS (
    SELECT trace_id, "{a.ANNOTATION_TARGET_TRACE_ID}" AS about FROM facts
    UNION ALL
    SELECT trace_id, unnest("{a.GROUP_EPISODES}") AS about FROM facts
    UNION ALL
    SELECT trace_id, unnest("{a.ANNOTATION_REJECTED_TRACE_IDS}") AS about FROM facts
)
SELECT DISTINCT trace_id, run
FROM facts
WHERE trace_id IN (SELECT trace_id FROM chosen)
    OR trace_id IN (SELECT trace_id FROM named WHERE about IN (SELECT trace_id FROM chosen))
    OR trace_id IN (SELECT trace_id FROM facts WHERE {{of_runs}} AND run IN (SELECT run FROM chosen))
"""


def traces_of(selection: Selection) -> str:
    """Return the query for trace and run of the selected episodes, of what names them, and of their runs."""
    conditions = [
        one_of(column, values)
        for column, values in (("facts.run", selection.run), ("trace_id", selection.trace))
        if values
    ]
    holds = [
        f"max({one_of(_quoted(key), values)})"
        for name, key in _FIELDS.items()
        if (values := getattr(selection, name))
    ]
    if selection.slice:
        contained = (f"list_contains({_quoted(a.TASK_SLICES)}, {texts([name])})" for name in selection.slice)
        holds.append(f"max({' OR '.join(contained)})")
    if selection.since is not None:
        holds.append(f"min(start_time) >= {selection.since}")
    if selection.until is not None:
        conditions.append(f"start_time < {selection.until}")
    return _SELECTED.format(
        columns=", ".join(("trace_id", "start_time", *map(_quoted, dict.fromkeys((*FACTS, *LISTS))))),
        conditions=_and(conditions),
        holds=_and(holds),
        of_runs=f"{_quoted(a.RUN_ID)} IS NOT NULL" + _and(f"{_quoted(key)} IS NULL" for key in _NOT_OF_RUNS),
    )


def one_of(column: str, values: Sequence[str]) -> str:
    """Return the condition that a column has one of these values."""
    return f"{column} IN ({texts(values) or 'NULL'})"


def texts(values: Iterable[str]) -> str:
    """Return texts as SQL, separated by commas."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def translated(query: str, dialect: str) -> str:
    """Return a query in the SQL of another engine, whose name is that of its extra."""
    try:
        import sqlglot
    except ImportError as error:
        raise MissingExtra(package="sqlglot", extra=dialect, purpose=f"queries by {dialect}") from error
    return sqlglot.transpile(query, read="duckdb", write=dialect)[0]


def _and(conditions: Iterable[str]) -> str:
    return "".join(f" AND {condition}" for condition in conditions)


def _quoted(name: str) -> str:
    return f'"{name}"'
