"""The health of graders, from the table of gradings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from mttp.model.evaluations import Evaluation
from mttp.model.gradings import OTHER, SCOPES, GraderFailure, GraderHealth
from mttp.tables.database import Database

__all__ = ["GradersOfRuns", "Queryable", "graders_of_evaluation", "graders_of_runs"]

MAX_GRADERS: Final = 1000
"""The maximum number of graders that are listed; gradings of further ones are counted as unlisted."""
MAX_NAMES: Final = 100
"""The maximum number of error types, of errors, of verdicts and of failed checks per grader."""
MAX_RAISED: Final = 3
"""The maximum number of episodes that are named as those that made a batch raise."""

_Key: TypeAlias = "tuple[str | None, str, str, str]"
"""Run, None for all runs, then scope, grader and component."""
_KEY = "run_id, scope, grader, component"
_SETS = f"GROUPING SETS (({_KEY}), (scope, grader, component))"
_IS_FAILED = "status NOT IN ('ok', 'partial', 'abstained', 'missing')"
_IS_INVALID = f"{_IS_FAILED} AND coalesce(error_type, '') IN ('invalid_value', 'out_of_range')"
_IS_SCORE = "status = 'ok' AND isfinite(value)"
_COUNTS = f"""
SELECT
    {_KEY},
    count(*) AS gradings,
    count(*) FILTER (status = 'ok') AS ok,
    count(*) FILTER (status = 'partial') AS partial,
    count(*) FILTER (status = 'abstained') AS abstained,
    count(*) FILTER (status = 'missing') AS missing,
    count(*) FILTER ({_IS_INVALID}) AS invalid,
    count(*) FILTER ({_IS_FAILED}) - invalid AS error,
    count(*) FILTER ({_IS_SCORE}) AS count,
    min(value) FILTER ({_IS_SCORE}) AS min,
    max(value) FILTER ({_IS_SCORE}) AS max,
    -- Large scores are scaled, so that the sum of finite ones is finite.
    CASE
        WHEN greatest(abs(min), abs(max)) < 1e290 THEN favg(value ORDER BY value) FILTER ({_IS_SCORE})
        ELSE favg(value / 1e18 ORDER BY value) FILTER ({_IS_SCORE}) * 1e18
    END AS mean
FROM gradings
WHERE {{condition}}
GROUP BY {_SETS}
"""
_NAMED = f"""
WITH counted AS (
    SELECT
        {_KEY}, name, message, count(*) AS number, min(place) AS first,
        (list(DISTINCT place ORDER BY place) FILTER (raised))[:{MAX_RAISED}] AS raised
    FROM (SELECT *, {{{{'time': "time", 'episode': episode}}}} AS place FROM ({{names}}))
    WHERE {{condition}}
    GROUP BY GROUPING SETS (({_KEY}, name, message), (scope, grader, component, name, message))
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY {_KEY} ORDER BY number DESC, name, message) > {MAX_NAMES} AS is_rare
    FROM counted
)
SELECT
    {_KEY},
    CASE WHEN is_rare THEN '{OTHER}' ELSE name END AS name,
    CASE WHEN is_rare THEN '' ELSE message END AS message,
    sum(number)::BIGINT AS number,
    min(first).episode AS first,
    flatten(list(raised)) AS raised
FROM ranked
GROUP BY ALL
ORDER BY number DESC, name, message
"""
_KIND = f"coalesce(nullif(error_type, ''), '{OTHER}')"
_NAMES = {
    "errors": f"""
        SELECT *, {_KIND} AS name, '' AS message FROM gradings WHERE {_IS_FAILED} AND NOT ({_IS_INVALID})
    """,
    "failures": f"""
        SELECT
            *, {_KIND} AS name, coalesce(nullif(error, ''), name) AS text,
            CASE WHEN starts_with(text, name) THEN substr(text, length(name) + 1) ELSE text END AS rest,
            CASE WHEN starts_with(rest, ': ') THEN substr(rest, 3) ELSE rest END[:200] AS message
        FROM gradings
        WHERE {_IS_FAILED}
    """,
    "verdicts": "SELECT *, verdict AS name, '' AS message FROM gradings WHERE verdict IS NOT NULL",
    "failed_checks": "SELECT *, unnest(failed_checks) AS name, '' AS message FROM gradings",
}


class Queryable(Protocol):
    """A database in which the tables that a query needs are computed."""

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query."""


class GradersOfRuns(NamedTuple):
    """The health of the graders of a run, or of all runs."""

    graders: tuple[GraderHealth, ...] = ()
    """By scope, then name, the total before its components."""
    unlisted: int = 0
    """Number of gradings of graders that are not listed."""


def graders_of_runs(
    database: Queryable, condition: str = "true", parameters: Mapping[str, Any] | None = None
) -> dict[str | None, GradersOfRuns]:
    """
    Return the health of graders by run, that of all runs by None.

    `condition` is SQL over the table of gradings, with `parameters` by name.
    """
    named: dict[str, defaultdict[_Key, list[Mapping[str, Any]]]] = {}
    counts = database.rows(_COUNTS.format(condition=condition), parameters)
    for kind, names in _NAMES.items() if counts else ():
        rows = named[kind] = defaultdict(list)
        for row in database.rows(_NAMED.format(names=names, condition=condition), parameters):
            rows[_key(row)].append(row)
    of_runs: defaultdict[str | None, list[GraderHealth]] = defaultdict(list)
    for row in counts:
        key = _key(row)
        of_runs[key[0]].append(_health(row, {kind: rows[key] for kind, rows in named.items()}))
    return {run: _listed(graders) for run, graders in of_runs.items()}


def graders_of_evaluation(database: Database, evaluation: Evaluation) -> tuple[GraderHealth, ...]:
    """Return the health of the graders of an evaluation's episodes, without scores that came later."""
    database.prepare("SELECT run_id FROM gradings")
    episodes = [result.episode for result in evaluation.latest().values()]
    of_runs = graders_of_runs(
        database, "episode IN (SELECT unnest($episodes)) AND scope <> 'late'", {"episodes": episodes}
    )
    return of_runs.get(None, GradersOfRuns()).graders


def _key(row: Mapping[str, Any]) -> _Key:
    return row["run_id"], row["scope"], row["grader"], row["component"]


def _health(counts: Mapping[str, Any], named: Mapping[str, Iterable[Mapping[str, Any]]]) -> GraderHealth:
    failures = named.get("failures", ())
    facts: dict[str, Any] = {name: value for name, value in counts.items() if name != "run_id"}
    for kind in ("errors", "verdicts", "failed_checks"):
        facts[kind] = {row["name"]: row["number"] for row in named.get(kind, ())}
    return GraderHealth(
        **facts,
        failures=tuple(
            GraderFailure(
                error_type=row["name"],
                message=row["message"],
                count=row["number"],
                first=row["first"],
                raised_by=tuple(place["episode"] for place in row["raised"] or ())[:MAX_RAISED],
            )
            for row in failures
        ),
    )


def _listed(graders: Iterable[GraderHealth]) -> GradersOfRuns:
    """Return the graders with the most gradings in order, and the number of gradings of the others."""
    by_count = sorted(graders, key=lambda grader: -grader.gradings)
    listed = sorted(by_count[:MAX_GRADERS], key=_order)
    return GradersOfRuns(tuple(listed), sum(grader.gradings for grader in by_count[MAX_GRADERS:]))


def _order(grader: GraderHealth) -> tuple[int, str, str]:
    scopes = SCOPES.index(grader.scope) if grader.scope in SCOPES else len(SCOPES)
    return scopes, grader.grader, grader.component
