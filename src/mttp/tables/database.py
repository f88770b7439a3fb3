"""The tables of a recording, computed by SQL over its spans: DuckDB runs it here, and spills to disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from mttp.codec.kinds import is_run
from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.lines import Columns, Rows
from mttp.reading.problems import Kind, Problem, undecodable
from mttp.reading.scanning import Scan
from mttp.reading.sources import Source
from mttp.tables.arrow import arrow_tables
from mttp.tables.spans import (
    CONTENT,
    DERIVED,
    SPAN_COLUMNS,
    SpanRows,
    all_rows,
    column_type,
    needs_arrays,
)
from mttp.tables.statements import TABLES, asked_columns, in_order, narrowed, statement, tables_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mttp.model.episodes import Run

__all__ = [
    "Database",
    "Table",
    "arrays_of",
    "column_types",
    "quoted",
    "require_duckdb",
    "rows_of",
]

_COLUMN = re.compile(rf'"((?:mttp|gen_ai|error|test)\.[\w.]+|{"|".join(DERIVED)})"')
_NAMES = re.compile(r'"column_names":(\[[^]]*\])')
_TABLES = re.compile(r'"table_name":"(\w+)"')
_NO_TABLE = re.compile(r"Table with name (\w+) does not exist")
_EPISODES: Final = asked_columns("episodes", ["FROM episodes"])
"""All columns of the table of episodes."""
_UNPACKS = frozenset({"played"})
"""Tables that need a row for each step in columns."""
_MEMORY: Final = "768MB"
_MEMORY_OF_CONTENT: Final = "2GB"
"""DuckDB joins the texts of an episode in memory."""
_FEW_SPANS: Final = 5_000
"""The most spans that get columns for absent values: each use of a view that adds them is planned anew."""
_SPANS_OF_TRANSACTION: Final = 40_000
"""Spans that are committed together: each commit compresses what earlier ones wrote."""
_MOST_THREADS: Final = 4
"""Each thread needs memory of its own."""
_OWN = "type <> '' AND NOT contains(span_id, ':')"
_DUPLICATES = f"""
SELECT (SELECT count(*) FROM arrivals WHERE {_OWN}) - (SELECT count(*) FROM single WHERE {_OWN})
"""


def column_types(tables: Iterable[str], queries: Iterable[str] = ()) -> dict[str, str]:
    """Return the types of the columns of `spans` that tables and queries need, without those of content."""
    named = {name for text in (*map(statement, tables), *queries) for name in _COLUMN.findall(text)}
    return _types(named - CONTENT)


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


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, those that repeat an earlier one with a number."""
    distinct: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        distinct[next(each for each in chain([name], numbered) if each not in distinct)] = None
    return [*distinct]


class Table:
    """A result: an Arrow table, as a data frame where wanted."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Table of {len(self):,} rows with the columns {', '.join(self.columns)}>"

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
        """
        Return a pandas data frame; maps are dicts, and integers with missing values stay exact.

        Raises MissingExtra without pandas.
        """
        pandas = _required("pandas")
        nullable = {"int64": pandas.Int64Dtype(), "bool": pandas.BooleanDtype()}
        return self._table.to_pandas(
            maps_as_pydicts="lossy", types_mapper=lambda type_: nullable.get(str(type_))
        )

    def pl(self) -> Any:
        """Return a polars data frame; raises MissingExtra without polars."""
        return _required("polars").from_arrow(self._table)


def require_duckdb() -> Any:
    """Return the module duckdb; raises MissingExtra without it or pyarrow."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtra(package=package, extra="study", purpose="tables of a recording") from error
    return duckdb


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def rows_of(connection: Any, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a query by column."""
    result = connection.execute(query, parameters or {})
    names = [name for name, *_ in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def arrays_of(connection: Any, query: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a query's result; a number that is null is NaN."""
    import numpy as np

    columns = connection.execute(query).fetchnumpy()
    return {
        name: column.filled(np.nan) if isinstance(column, np.ma.MaskedArray) else column
        for name, column in columns.items()
    }


def _required(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(package=package, extra=None, purpose="a data frame of it") from error


def _free(connection: Any, folder: TemporaryDirectory[str]) -> None:
    connection.close()
    folder.cleanup()


class Database:
    """
    The tables of a source, each computed when a query first names it.

    `source` is that of `mttp.read`, and `traces` the ids of those traces that count, by default all.
    `database.episodes` is the whole table `episodes`, and so for each other table.
    Memory is bounded: what does not fit is on disk while the database is open.
    Raises MissingExtra if DuckDB is not installed, and ReadError if the source can't be read.
    """

    def __init__(
        self,
        source: Source,
        *,
        traces: Set[str] | None = None,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        duckdb = require_duckdb()
        self._scan = Scan(source, arrays=False, strict=strict)
        self._errors: type[Exception] = duckdb.Error
        self._folder = TemporaryDirectory(prefix="mttp-")
        self._connect(_MEMORY)
        self._source = source
        self._strict = strict
        self._traces = traces
        self._progress = progress
        self._run_records: list[SpanRecord] = []
        self._tables: set[str] = set()
        """The tables that are computed, without that of episodes."""
        self._of_episodes: frozenset[str] = frozenset()
        """The columns of the table of episodes that are computed."""
        self._columns: set[str] | None = None
        self._unpacks = False
        self.duplicates = 0
        """Number of repeated spans of mttp that were dropped."""

    def _connect(self, memory: str) -> None:
        """Connect to an empty database with so much memory."""
        import duckdb

        threads = min(os.cpu_count() or 1, _MOST_THREADS)
        settings: Any = {"memory_limit": memory, "threads": threads, "temp_directory": self._folder.name}
        self._connection: Any = duckdb.connect(config=settings)
        self._connection.execute(
            "SET python_enable_replacements = false; SET enable_external_access = false; "
            "SET lock_configuration = true"
        )
        self._free = finalize(self, _free, self._connection, self._folder)

    @property
    def problems(self) -> list[Problem]:
        """Problems of the spans that were read."""
        return self._scan.problems

    @property
    def sources(self) -> list[Path]:
        """Paths of the files, in order."""
        return self._scan.sources

    @property
    def stores(self) -> list[str]:
        """Trace stores, as `scheme:url`, and datasets, in order."""
        return self._scan.stores

    @property
    def runs(self) -> list[Run]:
        """The runs in order of start, one per process; one that can't be decoded is a problem."""
        from mttp.codec import runs as run_codec  # imports all values

        self.prepare("FROM roots")
        traces: dict[str, dict[str, SpanRecord]] = {}
        for record in self._run_records:
            traces.setdefault(record.trace_id, {}).setdefault(record.span_id, record)
        runs = []
        for trace_id, records in traces.items():
            try:
                runs.append(run_codec.decode([*records.values()]))
            except Exception as error:
                self.add_problem("broken_trace", undecodable(trace_id, error), trace_id=trace_id)
        return sorted(runs, key=lambda run: (run.start_time or 0, run.id))

    def add_problem(self, kind: Kind, message: str, *, trace_id: str | None = None) -> None:
        """Add a problem of the spans."""
        self._scan.add_problem(kind, message, trace_id=trace_id)

    def add_missing_episodes(self, runs: Iterable[Run], episodes: Mapping[str, int]) -> None:
        """
        Add a problem for each run of which episodes are missing, unless the traces were selected.

        `episodes` are the numbers by run.
        """
        if self._traces is None:
            self._scan.add_missing_episodes(runs, episodes)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Table:
        """Return a whole table by its name."""
        if name not in TABLES:
            raise AttributeError(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
        return self.sql(f"SELECT * FROM {name}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def close(self) -> None:
        """Free memory and disk, as also happens when the database is no longer used."""
        self._free()

    def interrupt(self) -> None:
        """Interrupt the query that another thread is waiting for, which raises ReadError there."""
        self._connection.interrupt()

    def sql(self, query: str, *, limit: int | None = None) -> Table:
        """
        Return the result of one `select`, or its first rows.

        A query can neither write nor reach files or the network.
        A column named like an earlier one gets a number: `x`, `x_1`.
        Raises ReadError for anything else than one select, and for one that is wrong, with its place.
        """
        try:
            self._check(query)
            self._load(query)
            result = self._connection.sql(query)
            table = (result if limit is None else result.limit(limit)).to_arrow_table()
        except self._errors as error:
            if missing := _NO_TABLE.search(str(error)):
                reason = f"there is no table {missing[1]}; the tables are {', '.join(TABLES)} and spans"
                raise ReadError(f"{query!r:.200}: {reason}") from error
            raise ReadError(f"{query!r:.200}: {error}") from error
        return Table(table.rename_columns(_distinct(table.column_names)))

    def _check(self, query: str) -> None:
        statements = self._connection.extract_statements(query)
        kinds = [str(each.type).rpartition(".")[2] for each in statements]
        if kinds != ["SELECT"]:
            named = ", ".join(kinds) or "nothing"
            raise ReadError(f"{query!r:.200} is {named}; write one select, such as select * from episodes")

    def prepare(self, *queries: str, content: bool = False) -> None:
        """
        Compute the tables that queries of this package name, reading the source once for all of them.

        Of the table of episodes, which is wide, it computes the columns that they name; all with `content`.
        """
        asked = _EPISODES if content else asked_columns("episodes", queries)
        self._load_tables(tables_of(*queries), queries, asked, content=content)

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query of this package, for which `prepare` was called."""
        self.prepare(query)
        return rows_of(self._connection, query, parameters)

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of such a query; a number that is null is NaN."""
        self.prepare(query)
        return arrays_of(self._connection, query)

    def arrow(self, query: str) -> Any:
        """Return the result of such a query as a `pyarrow.Table`."""
        self.prepare(query)
        return self._connection.sql(query).to_arrow_table()

    def _load(self, query: str) -> None:
        """Compute the tables that the query may name, and those below them."""
        parsed = self._parsed(query)
        content = _asks_for_content(parsed)
        asked = _EPISODES if content else _EPISODES - CONTENT
        self._load_tables(_TABLES.findall(parsed), [query], asked, content=content)

    def _load_tables(
        self, names: Iterable[str], queries: Iterable[str], asked: frozenset[str], *, content: bool
    ) -> None:
        """Compute tables, of that of episodes the columns that are asked for, and those below them."""
        tables = in_order(map(str.lower, names))
        columns = {name for text in (*map(statement, tables), *queries) for name in _COLUMN.findall(text)}
        if not content:
            columns -= CONTENT
        unpacks = not _UNPACKS.isdisjoint(tables)
        if self._columns is None or not columns <= self._columns or unpacks > self._unpacks:
            types = _types(columns | (self._columns or set()))
            self._columns = None  # until all of them are read
            self._unpacks |= unpacks
            self._tables.clear()
            self._of_episodes = frozenset()
            self._free.detach()
            self._connection.close()
            self._connect(_MEMORY if CONTENT.isdisjoint(types) else _MEMORY_OF_CONTENT)
            self._load_spans(types)
            self._columns = {*types}
        for table in tables:
            if table == "episodes":
                self._compute_episodes(asked | asked_columns(table, map(statement, tables)))
            elif table not in self._tables:
                self._connection.execute(f"CREATE OR REPLACE TABLE {table} AS {statement(table)}")
                self._tables.add(table)

    def _compute_episodes(self, asked: frozenset[str]) -> None:
        """Compute the table of episodes unless it has these columns."""
        if not asked <= self._of_episodes:
            self._of_episodes |= asked
            select = narrowed("episodes", self._of_episodes)
            self._connection.execute(f"CREATE OR REPLACE TABLE episodes AS {select}")

    def _parsed(self, query: str) -> str:
        """Return the syntax tree of a query as JSON."""
        ((tree,),) = self._connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
        return str(tree)

    def _load_spans(self, types: Mapping[str, str]) -> None:
        """Read the spans; the columns with these types follow those that every span has."""
        arrays = needs_arrays(types) or self._unpacks
        wanted = Columns("mttp.tables.spans", "mttp.tables.batches", ([*types], self._unpacks))
        self._scan = Scan(
            self._source, arrays=arrays, strict=self._strict, progress=self._progress, columns=wanted
        )
        self._run_records.clear()
        rows = all_rows(self._noted(self._scan), SpanRows(*wanted.arguments))
        present = self._insert(arrow_tables(rows), types)
        absent = {**types, **_types(CONTENT)}
        nulls = [f', NULL::{type_} AS "{name}"' for name, type_ in absent.items() if name not in present]
        kind = "TABLE" if self._leave_out_copies() <= _FEW_SPANS else "VIEW"
        self._connection.execute(f"CREATE {kind} spans AS SELECT *{''.join(nulls)} FROM arrivals")

    def _insert(self, tables: Iterable[Any], types: Mapping[str, str]) -> Set[str]:
        """Create the table of spans of Arrow tables, with the columns that these have; return the columns."""
        present = {"place": "BIGINT", **SPAN_COLUMNS}
        described = ", ".join(f"{name} {type_}" for name, type_ in present.items())
        self._connection.execute(f"CREATE TABLE arrivals ({described})")
        chosen = "CREATE TABLE chosen AS SELECT unnest(?::VARCHAR[]) AS trace_id"
        self._connection.execute(chosen, [[*(self._traces or ())]])
        which = "" if self._traces is None else "WHERE trace_id IN (FROM chosen)"
        self._connection.execute("BEGIN")
        uncommitted = 0
        for table in tables:
            for name in {*table.column_names} - present.keys():
                present[name] = types[name]
                self._connection.execute(f'ALTER TABLE arrivals ADD COLUMN "{name}" {types[name]}')
            self._connection.register("batch", table)
            self._connection.execute(f"INSERT INTO arrivals BY NAME FROM batch {which}")
            self._connection.unregister("batch")
            uncommitted += len(table)
            if uncommitted >= _SPANS_OF_TRANSACTION:
                self._connection.execute("COMMIT; BEGIN")
                uncommitted = 0
        self._connection.execute("COMMIT")
        return present.keys()

    def _noted(self, spans: Iterable[SpanRecord | Rows]) -> Iterator[SpanRecord | Rows]:
        """Yield the spans, and keep those of runs."""
        for span in spans:
            if isinstance(span, SpanRecord) and is_run(span):
                self._run_records.append(span)
            yield span

    def _leave_out_copies(self) -> int:
        """Replace the spans by those without copies, if there are any; return the number of spans."""
        numbers = "SELECT count(*), count(DISTINCT (trace_id, coalesce(copy_of, span_id))) FROM arrivals"
        ((count, distinct),) = self._connection.execute(numbers).fetchall()
        self.duplicates = 0
        if count > distinct:
            self._connection.execute(f"CREATE TABLE single AS {statement('spans')}")
            ((self.duplicates,),) = self._connection.execute(_DUPLICATES).fetchall()
            self._connection.execute("DROP TABLE arrivals; ALTER TABLE single RENAME TO arrivals")
        return int(count)

    def columns(self, table: str) -> Iterator[tuple[str, str]]:
        """Yield the columns of a table with their types."""
        self.prepare(f"FROM {table}")
        for name, type_, *_ in self._connection.execute(f"DESCRIBE {table}").fetchall():
            yield name, type_
