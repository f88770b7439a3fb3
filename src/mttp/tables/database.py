"""The tables of a recording, computed by SQL over its spans: DuckDB runs it here, and spills to disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from tempfile import TemporaryDirectory
from typing import Any, Final

from mttp.errors import MissingExtra, ReadError
from mttp.otlp.streams import Progress
from mttp.reading.problems import Problem
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.tables.spans import CONTENT, DERIVED, SPAN_COLUMNS, batches, column_type, needs_arrays

__all__ = ["TABLES", "Database", "Table", "statement"]

TABLES: Final = (
    "episodes",
    "steps",
    "calls",
    "scorings",
    "components",
    "groups",
    "updates",
    "evaluations",
)
"""Names of the tables; `spans`, which they are computed from, can be queried, too."""
_BELOW: Final = (
    *("roots", "parts", "called", "effective", "played", "targets", "judgements", "marks", "gradings"),
)
"""Tables that others are computed from."""
_COLUMN = re.compile(rf'"((?:mttp|gen_ai|error|test)\.[\w.]+|{"|".join(DERIVED)})"')
_NAMES = re.compile(r'"column_names":(\[[^]]*\])')
_TABLES = re.compile(r'"table_name":"(\w+)"')
_WITHIN = re.compile(r"(?:^|\bWITH |\bRECURSIVE )(\w+) AS \(", re.MULTILINE)
_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_UNPACKS = frozenset({"played"})
"""Tables that need a row for each step in columns."""
_MEMORY: Final = "2GB"


@cache
def statement(table: str) -> str:
    """Return the SQL statement that computes a table from `spans` and other tables."""
    return files("mttp.tables").joinpath("sql", f"{table}.sql").read_text()


@cache
def _needed(table: str) -> list[str]:
    """Return the tables that a table is computed from, each after its own, and the table itself."""
    text = re.sub(r"--.*", "", statement(table))
    own = {table, *_WITHIN.findall(text)}
    return [*_in_order(name for name in _TABLE.findall(text) if name not in own), table]


def _in_order(tables: Iterable[str]) -> list[str]:
    """Return these tables, each after those that it is computed from."""
    known = [name for name in dict.fromkeys(tables) if name in TABLES or name in _BELOW]
    return [*dict.fromkeys(name for table in known for name in _needed(table))]


def _types(columns: Iterable[str]) -> dict[str, str]:
    """Return the types of columns by name; raises ReadError for one that is no attribute."""
    types = {}
    for name in sorted(columns):
        try:
            types[name] = column_type(name)
        except KeyError:
            raise ReadError(f"{name} is no attribute of the convention") from None
    return types


def _asks_for_content(parsed: str) -> bool:
    """Return whether a query names a column of content, or all columns of a table."""
    names = {name for names in _NAMES.findall(parsed) for name in json.loads(names.lower())}
    return '"class":"STAR"' in parsed or not CONTENT.isdisjoint(names)


class Table:
    """A result: an Arrow table, as a data frame where wanted."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    def arrow(self) -> Any:
        """Return the `pyarrow.Table`."""
        return self._table

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the first rows, by default all, as plain values by column; maps are dicts."""
        table = self._table if limit is None else self._table.slice(0, limit)
        return list(table.to_pylist(maps_as_pydicts="lossy"))

    def df(self) -> Any:
        """Return a pandas data frame; raises MissingExtra without pandas."""
        _required("pandas")
        return self._table.to_pandas()

    def pl(self) -> Any:
        """Return a polars data frame; raises MissingExtra without polars."""
        return _required("polars").from_arrow(self._table)


def _required(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(package=package, extra=None, purpose="a data frame of it") from error


class Database:
    """
    The tables of a source, each computed when a query first names it.

    `source` is that of `mttp.read`. Memory is bounded: what does not fit is on disk while the database is
    open. Raises MissingExtra if DuckDB is not installed, and ReadError if the source can't be read.
    """

    def __init__(self, source: Source, *, progress: Progress | None = None) -> None:
        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError as error:
            package = str(error.name).partition(".")[0]
            raise MissingExtra(package=package, extra="study", purpose="tables of a recording") from error
        self._errors: type[Exception] = duckdb.Error
        self._folder = TemporaryDirectory(prefix="mttp-")
        settings: Any = {"memory_limit": _MEMORY, "temp_directory": self._folder.name}
        self._connection: Any = duckdb.connect(config=settings)
        self._connection.execute(
            "SET python_enable_replacements = false; SET enable_external_access = false; "
            "SET lock_configuration = true"
        )
        self._source = source
        self._progress = progress
        self._tables: set[str] = set()
        self._columns: set[str] | None = None
        self._unpacks = False
        self.problems: list[Problem] = []
        """Problems of the spans that were read."""

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free memory and disk."""
        self._connection.close()
        self._folder.cleanup()

    def sql(self, query: str) -> Table:
        """
        Return the result of one `select`.

        A query can neither write nor reach files or the network.
        Raises ReadError for anything else than one select, and for one that is wrong, with its place.
        """
        try:
            self._check(query)
            self._load(query)
            return Table(self._connection.sql(query).to_arrow_table())
        except self._errors as error:
            raise ReadError(f"{query!r:.200}: {error}") from error

    def _check(self, query: str) -> None:
        statements = self._connection.extract_statements(query)
        kinds = [str(each.type).rpartition(".")[2] for each in statements]
        if kinds != ["SELECT"]:
            named = ", ".join(kinds) or "nothing"
            raise ReadError(f"{query!r:.200} is {named}; write one select, such as select * from episodes")

    def _load(self, query: str) -> None:
        """Compute the tables that the query may name, and those below them."""
        parsed = self._parsed(query)
        tables = _in_order(map(str.lower, _TABLES.findall(parsed)))
        columns = {name for text in (*map(statement, tables), query) for name in _COLUMN.findall(text)}
        if not _asks_for_content(parsed):
            columns -= CONTENT
        unpacks = not _UNPACKS.isdisjoint(tables)
        if self._columns is None or not columns <= self._columns or unpacks > self._unpacks:
            types = _types(columns | (self._columns or set()))
            self._columns = None  # until all of them are read
            self._unpacks |= unpacks
            self._tables.clear()
            self._load_spans(types)
            self._columns = {*types}
        for table in tables:
            if table not in self._tables:
                self._connection.execute(f"CREATE OR REPLACE TABLE {table} AS {statement(table)}")
                self._tables.add(table)

    def _parsed(self, query: str) -> str:
        """Return the syntax tree of a query as JSON."""
        ((tree,),) = self._connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
        return str(tree)

    def _load_spans(self, types: Mapping[str, str]) -> None:
        """Read the spans; the columns with these types follow those that every span has."""
        columns = [*types]
        fixed = {name: type_ for name, (type_, _) in SPAN_COLUMNS.items()}
        table = {**fixed, **types, **_types(CONTENT)}
        described = ", ".join(f'"{name}" {type_}' for name, type_ in table.items())
        self._connection.execute(f"CREATE OR REPLACE TABLE arrivals (place BIGINT, {described})")
        scan = Scan(self._source, arrays=needs_arrays(columns) or self._unpacks, progress=self._progress)
        place = 0
        for batch in batches(scan, columns, unpack=self._unpacks):
            self._connection.register("batch", batch)
            self._connection.execute(
                f"INSERT INTO arrivals BY NAME SELECT {place} + row_number() OVER () AS place, * FROM batch"
            )
            self._connection.unregister("batch")
            place += len(batch)
        self.problems = scan.problems
        self._connection.execute(f"CREATE OR REPLACE TABLE spans AS {statement('spans')}")
        self._connection.execute("DROP TABLE arrivals")

    def columns(self, table: str) -> Iterator[tuple[str, str]]:
        """Yield the columns of a table with their types."""
        self._load(f"SELECT 1 FROM {table}")
        for name, type_, *_ in self._connection.execute(f"DESCRIBE {table}").fetchall():
            yield name, type_
