"""Conditions of `--where`: a column, an operator and a value, or SQL over the table of episodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mttp.errors import MissingExtra, ReadError

if TYPE_CHECKING:
    from mttp.reading.conditions import Condition

__all__ = ["conditions"]

_OF_CONTENT = re.compile(r"\s*(prompt|completion)\s*(!=|=|~)\s*(.*?)\s*", re.DOTALL)


def conditions(paths: Sequence[str], texts: Sequence[str]) -> list[Condition]:
    """
    Parse conditions on the episodes of recordings.

    What is no simple condition is SQL over the columns of the table of episodes, and is asked for once.
    Raises ReadError for a condition that is neither.
    """
    from mttp.reading.conditions import condition

    simple: list[Condition] = []
    queries: dict[str, ReadError] = {}
    for text in texts:
        try:
            simple.append(condition(text))
        except ReadError as error:
            queries[_of_content(text) or text] = error
    return [*simple, _by_sql(paths, queries)] if queries else simple


def _of_content(text: str) -> str | None:
    """Return a condition on a text as SQL."""
    parts = _OF_CONTENT.fullmatch(text)
    if parts is None or parts[3][:1] == "'":
        return None
    column, sign, value = parts.groups()
    quoted = "'" + value.replace("'", "''") + "'"
    if sign == "~":
        return f"regexp_matches({column}, {quoted})"
    return f"{column} {'=' if sign == '=' else 'IS DISTINCT FROM'} {quoted}"


def _by_sql(paths: Sequence[str], queries: dict[str, ReadError]) -> Condition:
    from mttp.tables import Database

    matching: list[set[str]] = []
    for text, simple in queries.items():
        try:
            with Database([*paths]) as database:
                rows = database.sql(f"SELECT trace_id FROM episodes WHERE ({text}\n)").rows()
        except MissingExtra as error:
            raise ReadError(f"{simple}; {error}") from error
        except ReadError as error:
            raise ReadError(f"{simple}; nor is it SQL over the table of episodes: {error}") from error
        matching.append({row["trace_id"] for row in rows})
    ids = set.intersection(*matching)
    return lambda episode: episode.trace_id in ids
