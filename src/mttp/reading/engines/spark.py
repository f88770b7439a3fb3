"""
Reads datasets by a Spark cluster: it filters and joins, and only what is selected comes to this process.

    spark://HOST:7077?path=s3a://BUCKET/PATH&run=...
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from mttp.errors import MissingExtra, ReadError
from mttp.reading.engines import layout
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.selecting import translated

__all__ = ["open"]

_BATCH_ROWS = 2_000
_CONNECT_SECONDS = 10.0
_AGAIN_SECONDS = 0.5


class _SparkEngine:
    """The spans of a dataset as a view of a Spark session, which later reads use again."""

    def __init__(self, address: DatasetAddress, path: str) -> None:
        self.unfinished_writes = 0  # Spark does not list files that begin with an underscore
        self._address = address
        self._path = path.rstrip("/")
        self._session: Any = None

    def open(self, runs: Sequence[str]) -> Any:  # noqa: ARG002 - Spark leaves out partitions itself
        """Make the table `spans`; return its Arrow schema."""
        if self._session is None:
            self._session = self._connect()
            place = f"{self._path}/{layout.SPANS}"
            with self._within_time():
                frame = self._session.read.parquet(place)
                if len({layout.version_of(path) for path in frame.inputFiles()}) > 1:
                    frame = self._session.read.parquet(place, mergeSchema=True)
            frame.createOrReplaceTempView("spans")
        with self._within_time():
            return self._session.table("spans").limit(0).toArrow().schema

    def _connect(self) -> Any:
        """Return a session of the cluster with views of its own."""
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise MissingExtra(
                package="pyspark", extra="spark", purpose=f"reading {self._address}"
            ) from error
        active = SparkSession.getActiveSession()
        if active is not None and active.sparkContext.master != self._address.place:
            other = active.sparkContext.master
            raise ReadError(f"{self._address}: this process has a Spark session of {other}; stop it first")
        self._check_port()
        builder = SparkSession.builder.master(self._address.place).appName("mttp")
        for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
            builder = builder.config(name, "false")
        session = (active or builder.getOrCreate()).newSession()
        session.sparkContext.setLogLevel("ERROR")
        session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        return session

    def _check_port(self) -> None:
        """Raise ReadError where nothing listens: Spark itself tries for a minute."""
        parts = urlsplit(self._address.place)
        try:
            socket.create_connection((parts.hostname, parts.port or 7077), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            advice = "is the master of the cluster running there?"
            raise ReadError(f"{self._address}: {error.strerror or error}; {advice}") from error

    def batches(self, query: str) -> Iterator[Any]:
        """Yield the rows of a query as Arrow batches, which arrive together."""
        with self._within_time():
            rows = self._session.sql(translated(query, "spark")).toArrow()
        yield from rows.to_batches(_BATCH_ROWS)

    @contextmanager
    def _within_time(self) -> Iterator[None]:
        """Cancel the jobs of the block after the time-out, which Spark lacks, and raise ReadError."""
        context, tag, seconds = self._session.sparkContext, f"mttp-{uuid.uuid4().hex}", self._address.timeout
        ended, is_late = Event(), Event()

        def watch() -> None:
            if not ended.wait(seconds):
                is_late.set()
                context.cancelJobsWithTag(tag)
                while not ended.wait(_AGAIN_SECONDS):  # a further job may have started
                    context.cancelJobsWithTag(tag)

        context.addJobTag(tag)
        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except Exception as error:
            if not is_late.is_set():
                raise
            advice = "does the cluster have free workers? timeout=N waits longer"
            raise ReadError(f"{self._address}: no answer within {seconds:g} seconds; {advice}") from error
        finally:
            ended.set()
            watcher.join()
            context.removeJobTag(tag)

    def join(self, trace_ids: Sequence[str]) -> str:
        """Return the name of a table with the column `trace_id` of these."""
        import pyarrow as pa

        self._session.createDataFrame(pa.table({"trace_id": [*trace_ids]})).createOrReplaceTempView("wanted")
        return "wanted"


def open(address: DatasetAddress) -> _SparkEngine:
    """The engine of a dataset, without a request; raises ReadError for an address without a path."""
    path = address.options.get("path")
    if not path:
        raise ReadError(
            f"{address}: which dataset? add ?path=s3a://BUCKET/PATH, or another path of the cluster"
        )
    return _SparkEngine(address, path)
