"""Reads datasets in folders and in object storage by DuckDB, which runs in this process."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mttp.errors import MissingExtra
from mttp.reading.engines import layout
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.storage import check_dataset, filesystem_of, unfinished

__all__ = ["open"]

_BATCH_ROWS = 2_000


class _DuckDBEngine:
    """The spans of a dataset as views of DuckDB; files of object storage are read by fsspec."""

    def __init__(self, address: DatasetAddress) -> None:
        self.unfinished_writes = 0
        self._address = address
        self._connection: Any = None
        self._root = ""
        self._found: list[str] = []
        """Paths of all files when it was opened."""
        self._tables: dict[tuple[str, ...], Any] = {}
        """By the runs for which they are asked."""

    def spans(self, runs: Sequence[str]) -> Any:
        """Return the table, an ibis expression, of the files that `Engine.spans` needs."""
        if self._connection is None:
            self._connect()
        key = tuple(runs)
        if key not in self._tables:
            paths = self._paths(frozenset(runs))
            versions = {layout.version_of(path) for path in paths}
            with _older_names():
                self._tables[key] = self._connection.read_parquet(
                    paths,
                    hive_partitioning=True,
                    hive_types_autocast=False,
                    union_by_name=len(versions) > 1,  # which opens each file
                )
        return self._tables[key]

    def _paths(self, runs: frozenset[str]) -> list[str]:
        """Return the files of these runs, of no run, and those that may name their episodes."""
        rows = [path for path in self._found if not layout.is_empty(path)]
        needed = [
            path
            for path in rows
            if not runs or layout.partition_at(path).run in {*runs, ""} or not layout.names_no_others(path)
        ]
        return [
            f"{self._root}/{path.removeprefix(self._path).lstrip('/')}" for path in needed or self._found[:1]
        ]

    def _connect(self) -> None:
        try:
            import ibis
        except ImportError as error:
            purpose = f"reading {self._address}"
            raise MissingExtra(package="ibis-framework", extra="dataset", purpose=purpose) from error
        files, path = self._files, self._path = filesystem_of(self._address)
        check_dataset(self._address, files, path)
        self.unfinished_writes = len(unfinished(files, path))
        self._found = sorted(
            file for file in files.find(f"{path}/{layout.SPANS}") if file.endswith(".parquet")
        )
        connection = ibis.duckdb.connect()
        if self._address.scheme == "file" and "=" not in path:
            self._root = path
        else:  # not by s3://, which needs an extension, nor below a folder that looks like a partition
            connection.register_filesystem(
                import_module("fsspec.implementations.dirfs").DirFileSystem(path, files)
            )
            self._root = "dir:/"
        connection.raw_sql("SET parquet_metadata_cache = true")
        self._connection = connection

    def batches(self, expression: Any) -> Iterator[Any]:
        """The rows of an expression as Arrow batches."""
        import ibis

        found = self._connection.con.sql(ibis.to_sql(expression, dialect="duckdb"))
        reader = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader  # before DuckDB 2
        yield from reader(_BATCH_ROWS)

    def cached(self, expression: Any) -> Any:
        """Return an expression that is computed once."""
        import ibis

        name = f"cached_{uuid.uuid4().hex}"
        statement = f"CREATE TEMP TABLE {name} AS {ibis.to_sql(expression, dialect='duckdb')}"
        self._connection.con.execute(statement)
        with _older_names():
            return self._connection.table(name)

    def joinable(self, ids: Sequence[str]) -> Any:
        """A table with the column `trace_id` of these ids."""
        import pyarrow as pa

        name = f"wanted_{uuid.uuid4().hex}"
        self._connection.con.register(name, pa.table({"trace_id": [*ids]}))
        with _older_names():
            return self._connection.table(name)


@contextmanager
def _older_names() -> Iterator[None]:
    """Ignore that ibis calls DuckDB by names that newer versions deprecate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def open(address: DatasetAddress) -> _DuckDBEngine:
    """The engine of a dataset, without a request."""
    return _DuckDBEngine(address)
