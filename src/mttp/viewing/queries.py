"""Queries of the episode browser as SQL, with the same rules as those of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from mttp.errors import ConfigureError
from mttp.viewing.index import EpisodeIndex
from mttp.viewing.rows import EpisodeColumn, from_start

__all__ = ["episode_rows"]

_MOST_ROWS = 1_000
_MOST_WORDS = 20
_MOST_FILTERS = 20
_LONGEST_WORD = 200
_MOST_PATTERNS = 3
_LONGEST_PATTERN = 200
_LONGEST_PATTERNS = 400
_LONGEST_VALUE = 1_000
_OPERATORS = {"=": "=", "!=": "IS DISTINCT FROM", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXTS = ("text", "state", "episode")


class _Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    column: str
    operator: str
    value: Annotated[str, msgspec.Meta(max_length=_LONGEST_VALUE)]


class _Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `viewer/src/data.ts` describes; what a tool leaves out has a default."""

    search: str = ""
    filters: list[_Filter] = []
    sort: str = ""
    descending: bool = False
    offset: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=_MOST_ROWS)] = 0


def episode_rows(
    index: EpisodeIndex, shown: Sequence[EpisodeColumn], query: Mapping[str, Any]
) -> dict[str, Any]:
    """
    The page of episodes that a query asks for, as `viewer/src/data.ts` describes both.

    Raises ConfigureError for a query that is not valid.
    """
    try:
        asked = msgspec.convert(query, _Query)
    except msgspec.ValidationError as error:
        raise ConfigureError(f"the query is not valid: {error}") from error
    columns = {one.key: one for one in shown}
    conditions, parameters = _conditions(index, columns, asked)
    where = " AND ".join(conditions) or "true"
    sort = _column(columns, asked.sort) if asked.sort else shown[0]
    direction = "DESC" if asked.descending else "ASC"
    cells = ", ".join(_expression(one) for one in shown)
    rows, matched, total = index.snapshot(
        (
            f"SELECT {cells} FROM episodes WHERE {where} "
            f"ORDER BY {_expression(sort)} {direction} NULLS LAST, episode LIMIT ? OFFSET ?",
            [*parameters, asked.limit, asked.offset],
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


def _column(columns: Mapping[str, EpisodeColumn], key: str) -> EpisodeColumn:
    if key not in columns:
        raise ConfigureError(f"there is no column {key[:_LONGEST_WORD]!r}; give one of {', '.join(columns)}")
    return columns[key]


def _expression(column: EpisodeColumn) -> str:
    if column.map is None:
        return f'"{column.key}"'
    escaped = column.name.replace("'", "''")
    return f"{column.map}['{escaped}']"


def _conditions(
    index: EpisodeIndex, columns: Mapping[str, EpisodeColumn], query: _Query
) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    parameters: list[Any] = []
    texts = ", ".join(_expression(one) for one in columns.values() if one.kind in _TEXTS)
    for word in _words(query):
        conditions.append(f"contains(lower(concat_ws(chr(10), {texts})), ?)")
        parameters.append(word)
    if len(query.filters) > _MOST_FILTERS:
        raise ConfigureError(f"there are {len(query.filters):,} filters; give at most {_MOST_FILTERS}")
    _check_patterns([one.value for one in query.filters if one.operator == "~"])
    for one in query.filters:
        column = _column(columns, one.column)
        condition, parameter = _condition(index, column, one.operator, one.value)
        conditions.append(condition)
        parameters.append(parameter)
    return conditions, parameters


def _check_patterns(patterns: Sequence[str]) -> None:
    """Raise for patterns that could take the database long: it can't be interrupted while it matches."""
    if len(patterns) > _MOST_PATTERNS:
        raise ConfigureError(f"there are {len(patterns)} filters with ~; give at most {_MOST_PATTERNS}")
    if max(map(len, patterns), default=0) > _LONGEST_PATTERN or sum(map(len, patterns)) > _LONGEST_PATTERNS:
        raise ConfigureError(
            f"the filters with ~ are too long; give at most {_LONGEST_PATTERN} characters each, "
            f"and {_LONGEST_PATTERNS} in all"
        )


def _words(query: _Query) -> list[str]:
    words = query.search.lower().split()
    if len(words) > _MOST_WORDS:
        raise ConfigureError(f"the search has {len(words):,} words; give at most {_MOST_WORDS}")
    if any(len(word) > _LONGEST_WORD for word in words):
        raise ConfigureError(f"a word of the search has more than {_LONGEST_WORD} characters; give fewer")
    return words


def _condition(index: EpisodeIndex, column: EpisodeColumn, operator: str, value: str) -> tuple[str, Any]:
    expression = _expression(column)
    if operator == "~":
        return f"regexp_matches(CAST({expression} AS VARCHAR), ?, 'i')", _pattern(index, value)
    if operator not in _OPERATORS:
        known = ", ".join([*_OPERATORS, "~"])
        raise ConfigureError(f"operator={operator[:_LONGEST_WORD]!r}: give one of {known}")
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
