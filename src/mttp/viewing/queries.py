"""Queries of the episode browser as SQL, with the same rules as those of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from mttp.errors import ConfigureError
from mttp.viewing.figures import EpisodeDatabase
from mttp.viewing.picking import PickedRuns
from mttp.viewing.rows import EpisodeColumn, cells, long_texts
from mttp.viewing.rows import columns as columns_of

__all__ = ["episode_rows"]

_MOST_ROWS = 1_000
_MOST_WORDS = 20
_MOST_FILTERS = 20
_MOST_RUNS = 200
_LONGEST_WORD = 200
_MOST_PATTERNS = 3
_LONGEST_PATTERN = 200
_LONGEST_PATTERNS = 400
_LONGEST_VALUE = 1_000
_OPERATORS = {"=": "=", "!=": "IS DISTINCT FROM", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXTS = ("text", "long", "state", "episode")


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
    texts: bool = False
    runs: list[str] = []


def episode_rows(database: EpisodeDatabase, query: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the page of episodes that a query asks for, as `viewer/src/data.ts` describes both.

    Raises ConfigureError for a query that is not valid.
    """
    try:
        asked = msgspec.convert(query, _Query)
    except msgspec.ValidationError as error:
        raise ConfigureError(f"the query is not valid: {error}") from error
    if len(asked.runs) > _MOST_RUNS:
        raise ConfigureError(f"there are {len(asked.runs):,} runs; give at most {_MOST_RUNS}")
    if asked.runs:
        database = PickedRuns(database, asked.runs)
    shown = columns_of(database)
    columns = {column.key: column for column in shown}
    conditions, parameters = _conditions(columns, asked)
    where = f"WHERE {' AND '.join(conditions) or 'true'}"
    sort = _column(columns, asked.sort) if asked.sort else shown[0]
    direction = "DESC" if asked.descending else "ASC"
    order = f"ORDER BY {sort.sql} {direction} NULLS LAST, trace_id LIMIT {asked.limit} OFFSET {asked.offset}"
    page = database.rows(
        f"SELECT trace_id, count(*) OVER () AS number FROM episodes {where} {order}", parameters
    )
    number = "SELECT count(*) AS number FROM episodes"
    (matched, *_) = page or database.rows(f"{number} {where}", parameters)
    (total,) = database.rows(number)
    trace_ids = [row["trace_id"] for row in page]
    rows = cells(database, shown, trace_ids)
    texts = long_texts(database, trace_ids) if asked.texts else None
    return {
        "total": total["number"],
        "matched": matched["number"],
        "columns": [column.to_dict() for column in shown],
        "rows": rows,
        "texts": texts,
    }


def _column(columns: Mapping[str, EpisodeColumn], key: str) -> EpisodeColumn:
    if key not in columns:
        raise ConfigureError(f"there is no column {key[:_LONGEST_WORD]!r}; give one of {', '.join(columns)}")
    return columns[key]


def _conditions(columns: Mapping[str, EpisodeColumn], query: _Query) -> tuple[list[str], dict[str, Any]]:
    words = _words(query)
    texts = ", ".join([*(column.sql for column in columns.values() if column.kind in _TEXTS), "exchange"])
    conditions = [
        f"contains(lower(concat_ws(chr(10), {texts})), $word{place})" for place, _ in enumerate(words)
    ]
    parameters: dict[str, Any] = {f"word{place}": word for place, word in enumerate(words)}
    if len(query.filters) > _MOST_FILTERS:
        raise ConfigureError(f"there are {len(query.filters):,} filters; give at most {_MOST_FILTERS}")
    _check_patterns([filter_.value for filter_ in query.filters if filter_.operator == "~"])
    for place, filter_ in enumerate(query.filters):
        column, name = _column(columns, filter_.column), f"value{place}"
        condition, parameters[name] = _condition(column, filter_.operator, filter_.value, f"${name}")
        conditions.append(condition)
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


def _condition(column: EpisodeColumn, operator: str, value: str, name: str) -> tuple[str, Any]:
    """Return a condition on the parameter of this name, and the parameter."""
    if operator == "~":
        return f"regexp_matches(CAST({column.sql} AS VARCHAR), {name}, 'i')", _pattern(value)
    if operator not in _OPERATORS:
        known = ", ".join([*_OPERATORS, "~"])
        raise ConfigureError(f"operator={operator[:_LONGEST_WORD]!r}: give one of {known}")
    if column.kind in _TEXTS:
        return f"{column.sql} {_OPERATORS[operator]} {name}", value
    number = _number(value)
    if number is None and operator == "!=":
        return f"{name} IS NULL", None  # true: also a missing value is not equal to it
    return f"{column.sql} {_OPERATORS[operator]} {name}", number


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None  # nothing is equal to it


def _pattern(value: str) -> str:
    """Return a regular expression; a text that is none is searched as it stands."""
    import duckdb

    with duckdb.connect() as connection:  # an error would end the transaction of the search
        try:
            connection.execute("SELECT regexp_matches('', ?)", [value])
        except duckdb.Error:
            return re.escape(value)
    return value
