"""
Partitioned datasets of Parquet files, and tables of spans, which query engines read.

    PATH                                       a folder, read by DuckDB
    s3://BUCKET/PATH                           object storage, read by DuckDB
    spark://HOST:7077?path=s3a://BUCKET/PATH   what a Spark cluster can read
    clickhouse://HOST:8123/DATABASE            the Collector's table of spans in ClickHouse
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from mttp.reading.engines.address import DatasetAddress, Selection
from mttp.reading.engines.clickhouse import SpanTable
from mttp.reading.engines.dataset import PartitionedDataset
from mttp.reading.engines.storage import is_dataset

__all__ = [
    "DatasetAddress",
    "PartitionedDataset",
    "Selection",
    "SpanTable",
    "is_address",
    "open",
]

_ENGINES: Mapping[str, str] = {
    "file": "mttp.reading.engines.duckdb",
    "s3": "mttp.reading.engines.duckdb",
    "spark": "mttp.reading.engines.spark",
}
"""Modules with a function `open(address)` that returns the engine, by scheme."""
_TABLE = "clickhouse"


def is_address(given: str) -> bool:
    """Whether the text is the address of a dataset or a table, or the path of a dataset."""
    scheme, separator, rest = given.partition("://")
    if separator and scheme != "file":
        return scheme in _ENGINES or scheme == _TABLE
    return is_dataset(Path(rest.partition("?")[0] if separator else given))


def open(given: str) -> PartitionedDataset | SpanTable:
    """The dataset or table at an address, without a request; raises ReadError if the address is invalid."""
    address = DatasetAddress.parse(given)
    if address.scheme == _TABLE:
        return SpanTable(address)
    return PartitionedDataset(address, import_module(_ENGINES[address.scheme]).open(address))
