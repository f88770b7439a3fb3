"""The SQL statements of the tables: which tables each is computed from, and those of fewer columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["TABLES", "asked_columns", "in_order", "narrowed", "statement", "tables_of"]

TABLES: Final = (
    "episodes",
    "steps",
    "calls",
    "scorings",
    "components",
    "groups",
    "updates",
    "evaluations",
    "agents",
    "annotations",
)
"""Names of the tables; `spans`, which they are computed from, can be queried, too."""
_BELOW: Final = (
    *("roots", "parts", "called", "effective", "played", "notes", "targets", "judgements", "marks"),
    *("gradings", "training", "behavior", "results", "rewards", "scores", "trained"),
)
"""Tables that others are computed from."""
_WITHIN = re.compile(r"(?:^|\bWITH |\bRECURSIVE )(\w+) AS \(", re.MULTILINE)
_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_NOTE = re.compile(r"--.*")
_WORD = re.compile(r"""'[^']*'|"([^"]*)"|([A-Za-z_]\w*)""")
_ALL_COLUMNS = re.compile(r"(?:\bSELECT|\bDISTINCT|,|\.)\s*\*|(?:^|\()\s*FROM\b")
_SUBQUERY = re.compile(r"^(\w+) AS \(\n(.*?)^\),?$", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"(?:^    -- .*\n)+(?:^(?!    -- ).*\n)+", re.MULTILINE)
_ALIAS = re.compile(r'(?:\bAS\s+)?(?:\w+\.)?"?(\w+)"?\s*$')
_LEFT_JOIN = re.compile(r"^LEFT JOIN (\w+) .*\n", re.MULTILINE)


@cache
def statement(table: str) -> str:
    """Return the SQL statement that computes a table from `spans` and other tables."""
    return files("mttp.tables").joinpath("sql", f"{table}.sql").read_text()


@cache
def _needed(table: str) -> list[str]:
    """Return the tables that a table is computed from, each after its own, and the table itself."""
    return [*_named(statement(table)), table]


def _named(text: str) -> list[str]:
    """Return the tables that a statement names, each after those that it is computed from."""
    text = _NOTE.sub("", text)
    own = {*_WITHIN.findall(text)}
    return in_order(name for name in _TABLE.findall(text) if name not in own)


def in_order(tables: Iterable[str]) -> list[str]:
    """Return these tables, each after those that it is computed from."""
    known = [name for name in dict.fromkeys(tables) if name in TABLES or name in _BELOW]
    return [*dict.fromkeys(name for table in known for name in _needed(table))]


def tables_of(*queries: str) -> list[str]:
    """Return the tables that queries of this package name, each after those that it is computed from."""
    return in_order(name for query in queries for name in _TABLE.findall(query))


class _Layout(NamedTuple):
    """The parts of a statement that ends with a `SELECT` of one column below each comment."""

    subqueries: Mapping[str, str]
    """The subqueries of `WITH` by name."""
    columns: Mapping[str, str]
    """The columns by name, each with its comment."""
    end: str
    """What follows the columns."""


@cache
def _layout(table: str) -> _Layout:
    start, _, last = statement(table).rpartition("\nSELECT\n")
    columns, _, end = last.partition("\nFROM ")
    texts = [text.rstrip().removesuffix(",") for text in _COLUMN.findall(f"{columns}\n")]
    names = [str(match[1]) for text in texts if (match := _ALIAS.search(text))]
    return _Layout(dict(_SUBQUERY.findall(start)), dict(zip(names, texts, strict=True)), f"FROM {end}")


def asked_columns(table: str, queries: Iterable[str]) -> frozenset[str]:
    """
    Return the columns of a table that queries of this package may name, and its first one.

    Returns all columns where a query has them all.
    """
    columns = _layout(table).columns.keys()
    naming = [query for query in queries if table in _TABLE.findall(query)]
    if any(map(_ALL_COLUMNS.search, naming)):
        return frozenset(columns)
    return frozenset(columns & {*_words(*naming), next(iter(columns))})


@cache
def narrowed(table: str, columns: Collection[str]) -> str:
    """
    Return the statement that computes these columns of a table, and those that they are computed from.

    It leaves out the joins and subqueries that no other column needs.
    """
    layout = _layout(table)
    needed = _reached(columns, layout.columns)
    select = ",\n".join(text for name, text in layout.columns.items() if name in needed)
    words = _words(select)
    end = _LEFT_JOIN.sub(lambda join: join[0] if join[1] in words else "", layout.end)
    used = _reached(_words(select, end), layout.subqueries)
    subqueries = ",\n".join(
        f"{name} AS (\n{text})" for name, text in layout.subqueries.items() if name in used
    )
    return f"WITH\n{subqueries}\nSELECT\n{select}\n{end}"


def _reached(names: Iterable[str], texts: Mapping[str, str]) -> set[str]:
    """Return the names that have a text, and those that these texts name, and so on."""
    reached: set[str] = set()
    waiting = texts.keys() & names
    while waiting:
        reached |= waiting
        waiting = texts.keys() & _words(*(texts[name] for name in waiting)) - reached
    return reached


def _words(*texts: str) -> set[str]:
    """Return the names in SQL."""
    return {quoted or word for text in texts for quoted, word in _WORD.findall(_NOTE.sub("", text))}
