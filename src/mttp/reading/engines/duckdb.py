"""Reads datasets in folders and in object storage by DuckDB, which runs in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.layout import MARKER
from mttp.reading.engines.storage import filesystem_of

__all__ = ["open"]

_BATCH_ROWS = 2_000


class _DuckDBEngine:
    """The tables of a dataset as views of DuckDB; files of object storage are read by fsspec."""

    def __init__(self, address: DatasetAddress) -> None:
        self._address = address
        self._connection: Any = None
        self._root = ""
        self._tables: dict[str, Any] = {}

    def table(self, name: str) -> Any:
        """The table, an ibis expression."""
        if self._connection is None:
            self._connect()
        if name not in self._tables:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # ibis calls DuckDB by older names
                self._tables[name] = self._connection.read_parquet(
                    f"{self._root}/{name}/*/*/*.parquet",
                    hive_partitioning=True,
                    hive_types_autocast=False,
                    union_by_name=True,
                )
        return self._tables[name]

    def _connect(self) -> None:
        try:
            import ibis
        except ImportError as error:
            purpose = f"reading {self._address}"
            raise MissingExtra(package="ibis-framework", extra="dataset", purpose=purpose) from error
        files, path = filesystem_of(self._address)
        if not files.exists(f"{path}/{MARKER}"):
            raise ReadError(
                f"{self._address} is not a dataset of mttp, or does not exist: it has no {MARKER}; "
                "`mttp convert RUNS PLACE --partition` writes one"
            )
        connection = ibis.duckdb.connect()
        if self._address.scheme == "file":
            self._root = path
        else:
            connection.register_filesystem(files)
            self._root = self._address.place
        self._connection = connection

    def batches(self, expression: Any) -> Iterator[Any]:
        """The rows of an expression as Arrow batches."""
        import ibis

        found = self._connection.con.sql(ibis.to_sql(expression, dialect="duckdb"))
        reader = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader  # before DuckDB 2
        yield from reader(_BATCH_ROWS)

    def joinable(self, ids: Sequence[str]) -> Any:
        """A table with the column `trace_id` of these ids."""
        import pyarrow as pa

        wanted = pa.table({"trace_id": [*ids]})
        return self._connection.create_table("wanted", wanted, temp=True, overwrite=True)


def open(address: DatasetAddress) -> _DuckDBEngine:
    """The engine of a dataset, without a request."""
    return _DuckDBEngine(address)
