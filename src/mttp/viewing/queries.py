"""Queries of the episode browser as SQL, with the same rules as those of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mttp.errors import ConfigureError
from mttp.viewing.index import EpisodeIndex
from mttp.viewing.rows import EpisodeColumn, from_start

__all__ = ["episode_rows"]

_MOST_ROWS = 1_000
_OPERATORS = {"=": "=", "!=": "IS DISTINCT FROM", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXTS = ("text", "state", "episode")


def episode_rows(
    index: EpisodeIndex, shown: Sequence[EpisodeColumn], query: Mapping[str, Any]
) -> dict[str, Any]:
    """
    The page of episodes that a query asks for, as `viewer/src/data.ts` describes both.

    Raises ConfigureError for a query that is not valid.
    """
    columns = {one.key: one for one in shown}
    conditions, parameters = _conditions(index, columns, query)
    where = " AND ".join(conditions) or "true"
    sort = columns.get(_text(query, "sort"), shown[0])
    direction = "DESC" if query.get("descending") else "ASC"
    limit = min(_count(query, "limit"), _MOST_ROWS)
    cells = ", ".join(_expression(one) for one in shown)
    rows, matched, total = index.snapshot(
        (
            f"SELECT {cells} FROM episodes WHERE {where} "
            f"ORDER BY {_expression(sort)} {direction} NULLS LAST, episode LIMIT ? OFFSET ?",
            [*parameters, limit, _count(query, "offset")],
        ),
        (f"SELECT count(*) FROM episodes WHERE {where}", parameters),
        ("SELECT count(*) FROM episodes", []),
    )
    times = [place for place, one in enumerate(shown) if one.kind == "time"]
    listed = [list(row) for row in rows]
    for row in listed:
        for place in times:
            row[place] = from_start(row[place])
    return {"total": _first(total), "matched": _first(matched), "rows": listed}


def _first(rows: Sequence[tuple[Any, ...]]) -> int:
    return int(rows[0][0]) if rows else 0


def _text(query: Mapping[str, Any], name: str) -> str:
    found = query.get(name, "")
    if not isinstance(found, str):
        raise ConfigureError(f"{name}={found!r}: give a text")
    return found


def _count(query: Mapping[str, Any], name: str) -> int:
    found = query.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 62:
        raise ConfigureError(f"{name}={found!r}: give a number from 0 on")
    return found


def _expression(column: EpisodeColumn) -> str:
    if column.map is None:
        return f'"{column.key}"'
    escaped = column.name.replace("'", "''")
    return f"{column.map}['{escaped}']"


def _conditions(
    index: EpisodeIndex, columns: Mapping[str, EpisodeColumn], query: Mapping[str, Any]
) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    parameters: list[Any] = []
    texts = ", ".join(_expression(one) for one in columns.values() if one.kind in _TEXTS)
    for word in _text(query, "search").lower().split():
        conditions.append(f"contains(lower(concat_ws(chr(10), {texts})), ?)")
        parameters.append(word)
    filters = query.get("filters", [])
    if not isinstance(filters, list) or not all(isinstance(one, Mapping) for one in filters):
        raise ConfigureError("filters: give a list of objects with column, operator and value")
    for one in filters:
        column = columns.get(_text(one, "column"))
        if column is not None:
            condition, parameter = _condition(index, column, _text(one, "operator"), _text(one, "value"))
            conditions.append(condition)
            parameters.append(parameter)
    return conditions, parameters


def _condition(index: EpisodeIndex, column: EpisodeColumn, operator: str, value: str) -> tuple[str, Any]:
    expression = _expression(column)
    if operator == "~":
        return f"regexp_matches(CAST({expression} AS VARCHAR), ?, 'i')", _pattern(index, value)
    if operator not in _OPERATORS:
        raise ConfigureError(f"operator={operator!r}: give one of {', '.join([*_OPERATORS, '~'])}")
    if column.kind in _TEXTS:
        return f"{expression} {_OPERATORS[operator]} ?", value
    if column.kind == "time":
        expression = f"({expression} // 1000000)"
    number = _number(value)
    if number is None and operator == "!=":
        return "? IS NULL", None  # true: also a missing value is not equal to it
    return f"{expression} {_OPERATORS[operator]} ?", number


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None  # nothing is equal to it


def _pattern(index: EpisodeIndex, value: str) -> str:
    """A regular expression; a text that is none is searched as it stands."""
    return value if index.is_pattern(value) else re.escape(value)
