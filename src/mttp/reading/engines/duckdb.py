"""Reads datasets in folders and in object storage by DuckDB, which runs in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.reading.engines import layout
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.selecting import texts
from mttp.reading.engines.storage import check_dataset, filesystem_of, unfinished

__all__ = ["open"]

_BATCH_ROWS = 2_000


class _DuckDBEngine:
    """The spans of a dataset as a view of DuckDB; files of object storage are read by fsspec."""

    def __init__(self, address: DatasetAddress) -> None:
        self.unfinished_writes = 0
        self._address = address
        self._connection: Any = None
        self._root = ""
        self._found: list[str] = []
        """Paths of all files when it was opened."""

    def open(self, runs: Sequence[str]) -> Any:
        """Make the table `spans` of the files that `Engine.open` needs; return its Arrow schema."""
        if self._connection is None:
            self._connect()
        paths = self._paths(frozenset(runs))
        versions = {layout.version_of(path) for path in paths}
        self._connection.execute(
            f"CREATE OR REPLACE VIEW spans AS FROM read_parquet([{texts(paths)}], hive_partitioning = true, "
            f"hive_types_autocast = false, union_by_name = {len(versions) > 1})"  # which opens each file
        )
        return self._connection.sql("SELECT * FROM spans LIMIT 0").to_arrow_table().schema

    def _paths(self, runs: frozenset[str]) -> list[str]:
        """Return the files of these runs, of no run, and those that may name their episodes."""
        needed = [
            path
            for path in self._found
            if not runs or layout.run_at(path) in {*runs, ""} or not layout.names_no_others(path)
        ]
        if not self._found:
            raise ReadError(f"{self._address}: nothing was found; the dataset has no files")
        return [
            f"{self._root}/{path.removeprefix(self._path).lstrip('/')}" for path in needed or self._found[:1]
        ]

    def _connect(self) -> None:
        try:
            import duckdb
        except ImportError as error:
            purpose = f"reading {self._address}"
            raise MissingExtra(package="duckdb", extra="dataset", purpose=purpose) from error
        files, path = filesystem_of(self._address)
        self._path = path
        check_dataset(self._address, files, path)
        self.unfinished_writes = len(unfinished(files, path))
        self._found = sorted(
            file for file in files.find(f"{path}/{layout.SPANS}") if file.endswith(".parquet")
        )
        connection = duckdb.connect()
        if self._address.scheme == "file" and "=" not in path:
            self._root = path
        else:  # not by s3://, which needs an extension, nor below a folder that looks like a partition
            connection.register_filesystem(
                import_module("fsspec.implementations.dirfs").DirFileSystem(path, files)
            )
            self._root = "dir:/"
        connection.execute("SET parquet_metadata_cache = true")
        self._connection = connection

    def batches(self, query: str) -> Iterator[Any]:
        """Yield the rows of a query as Arrow batches."""
        rows = self._connection.sql(query)
        reader = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader  # before DuckDB 2
        yield from reader(_BATCH_ROWS)

    def join(self, trace_ids: Sequence[str]) -> str:
        """Return the name of a table with the column `trace_id` of these."""
        import pyarrow as pa

        self._connection.register("wanted", pa.table({"trace_id": [*trace_ids]}))
        return "wanted"


def open(address: DatasetAddress) -> _DuckDBEngine:
    """The engine of a dataset, without a request."""
    return _DuckDBEngine(address)
