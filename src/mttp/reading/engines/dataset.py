"""Reads partitioned datasets by a query engine: it selects rows and columns, and only those come back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.layout import partition_run
from mttp.reading.engines.selecting import one_of, traces_of

__all__ = ["Engine", "PartitionedDataset"]

_FEW = 1000
"""Largest number of ids that are part of a condition; more are joined."""


class Engine(Protocol):
    """Runs queries of a dataset's spans."""

    unfinished_writes: int
    """Number of writes that have not ended; zero before the first request."""

    def open(self, runs: Sequence[str]) -> Any:
        """
        Make the table `spans` with the columns `run` and `date` of its partitions; return its Arrow schema.

        With `runs`, files of other runs whose spans name no episodes of these may be left out.
        """

    def batches(self, query: str) -> Iterator[Any]:
        """Yield the rows of a query in DuckDB's SQL as Arrow batches."""

    def join(self, trace_ids: Sequence[str]) -> str:
        """Return the name of a table with the column `trace_id` of these."""


class PartitionedDataset:
    """The selected episodes of a dataset; the engine is asked when they are iterated over."""

    def __init__(self, address: DatasetAddress, engine: Engine) -> None:
        self.address = address
        self._engine = engine
        self._runs = tuple(map(partition_run, address.selection.run))

    def __repr__(self) -> str:
        return str(self.address)

    def check(self) -> None:
        """Raise ReadError unless there is a dataset that can be read."""
        with readable(self):
            self._engine.open(())

    @property
    def unfinished(self) -> str | None:
        """A description of what was not written when the dataset was opened, if anything was."""
        count = self._engine.unfinished_writes
        if not count:
            return None
        place = shlex.quote(self.address.place)
        return (
            f"{count} conversion{'' if count == 1 else 's'} to it did not end: episodes may be missing; "
            f"if no conversion is running, `mttp convert {place} NEW --partition` writes what is there to "
            "another dataset, to which the recording can be converted again"
        )

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        Yield the spans of the selected episodes and what is about them, in the order of writing.

        With `traces`, only the spans of these. Raises ReadError if the engine can't read them.
        """
        for batch in self.batches(arrays=arrays, traces=traces):
            with readable(self):
                yield from self.records_of(batch, arrays=arrays)

    def records_of(self, batch: Any, *, arrays: bool) -> Iterator[SpanRecord]:
        """Yield the spans of a batch."""
        from mttp.reading import parquet

        yield from parquet.spans_of(batch, arrays=arrays)

    def batches(self, *, arrays: bool, traces: Set[str] | None = None) -> Iterator[Any]:
        """Yield these spans as Arrow batches with the columns of a Parquet file of spans."""
        from mttp.reading import parquet

        with readable(self):
            runs: Sequence[str] = ()
            trace_ids: Sequence[str] | None = None
            if traces is not None:
                trace_ids = sorted(traces)
            elif not self.address.selection.is_everything:
                trace_ids, runs = self._selected()
            is_empty = True
            for batch in self._engine.batches(self._query(trace_ids, runs, arrays=arrays)):
                is_empty = is_empty and not len(batch)
                yield parquet.checked(batch)
            if is_empty and traces is None:
                reason = self.unfinished or "check the options of the address"
                raise ReadError(f"{self}: nothing was found; {reason}")

    def _selected(self) -> tuple[list[str], list[str]]:
        """Return the traces of selected episodes and of what is about them or their runs, and these runs."""
        selection = replace(self.address.selection, run=self._runs)
        self._engine.open(self._runs)
        rows = [row for batch in self._engine.batches(traces_of(selection)) for row in batch.to_pylist()]
        return sorted({row["trace_id"] for row in rows}), sorted({row["run"] for row in rows})

    def _query(self, traces: Sequence[str] | None, runs: Sequence[str], *, arrays: bool) -> str:
        """Return the query for the spans of these traces, in the partitions of these runs; by default all."""
        from mttp.reading import parquet

        names = parquet.span_columns(self._engine.open(runs), arrays=arrays)
        conditions = [one_of("coalesce(run, '')", runs)] if runs else []
        if traces is not None and len(traces) <= _FEW:
            conditions.append(one_of("trace_id", traces))
        elif traces is not None:
            conditions.append(f"trace_id IN (SELECT trace_id FROM {self._engine.join(traces)})")
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        columns = ", ".join(f'"{name}"' for name in names)
        return f"SELECT {columns} FROM spans {where} ORDER BY position"
