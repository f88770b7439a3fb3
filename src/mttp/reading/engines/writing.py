"""Writes partitioned datasets: Parquet files of spans by run and date."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mttp.codec import kinds
from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.recording_files import DATASET_MARKER
from mttp.reading import parquet
from mttp.reading.engines import layout
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.layout import SPANS
from mttp.reading.engines.storage import PARTIAL, UNFINISHED, check_dataset, filesystem_of, marker
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["DatasetWriter", "dataset_writer", "writable"]

_PART_ROWS = 50_000
"""Largest number of spans of one file."""
_PART_BYTES = 1 << 26
_BUFFERED_BYTES = 1 << 28
"""Estimated bytes of spans in memory from which the largest partition is written."""
_GROUP_ROWS = 2_000
"""Rows of a row group: what is read at least to get one episode."""
_NAMING = frozenset({a.GROUP_EPISODES, a.ANNOTATION_TARGET_TRACE_ID, a.ANNOTATION_REJECTED_TRACE_IDS})
"""Attributes with trace ids of other episodes, by which groups and annotations are found for a selection."""


def dataset_writer(given: str) -> DatasetWriter:
    """
    A writer to the dataset at an address, which need not exist.

    Raises ReadError for an address to which nothing can be written, and for a folder with other files.
    """
    address, files, root = writable(given)
    with readable(address):
        if files.exists(f"{root}/{DATASET_MARKER}"):
            check_dataset(address, files, root)
        elif files.find(root):
            raise ReadError(f"{address} is not empty and not a dataset of mttp: give another place")
    return DatasetWriter(given, files, root)


def writable(given: str) -> tuple[DatasetAddress, Any, str]:
    """A parsed address with its filesystem and path; raises ReadError if nothing can be written there."""
    address = DatasetAddress.parse(given)
    if not address.selection.is_everything:
        raise ReadError(f"{address}: a dataset is written as a whole; leave out the options that select")
    with readable(address):
        return address, *filesystem_of(address)


class DatasetWriter:
    """
    Adds spans to the dataset in a folder of an fsspec filesystem, which it creates.

    Spans are written as they come. A `write` that fails removes its files.
    """

    def __init__(self, place: str, filesystem: Any, root: str) -> None:
        self._place = place
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._position = time.time_ns()
        self._name = f"{self._position:x}{secrets.token_hex(4)}"
        self._runs: dict[str, str] = {}
        """Run by trace id."""
        self._waiting: defaultdict[str, list[tuple[int, SpanRecord]]] = defaultdict(list)
        """Spans of other libraries whose trace has no run yet, by trace id."""
        self._spans: dict[tuple[str, bool], _SpanBuffer] = {}
        """By the folder of their partition, and whether they name episodes of other traces."""
        self._buffered = 0
        """Their size, estimated in bytes."""
        self.files: list[str] = []
        """Paths of the files that were written."""
        self._ended: set[str] = set()

    @property
    def episodes(self) -> int:
        """Number of episodes whose end was written."""
        return len(self._ended)

    def write(self, records: Iterable[SpanRecord]) -> int:
        """Write the spans; return their number."""
        count = 0
        try:
            for record in records:
                count += 1
                self._add(record)
            self._finish()
        except BaseException:
            for path in self.files:
                with suppress(Exception):  # the failure itself is raised
                    self._filesystem.rm_file(path)
            with suppress(Exception):
                self._end()
            raise
        with readable(self._place):
            self._end()
        return count

    def _add(self, record: SpanRecord) -> None:
        self._position += 1
        run = record.attributes.get(a.RUN_ID) or record.scope.resource.get(a.RUN_ID)
        if run is not None:
            self._runs.setdefault(record.trace_id, str(run))
        if kinds.kind(record) == names.EPISODE:
            self._ended.add(record.trace_id)
        if record.trace_id not in self._runs:
            self._waiting[record.trace_id].append((self._position, record))
            return
        for position, waiting in self._waiting.pop(record.trace_id, ()):
            self._buffer(waiting, position)
        self._buffer(record, self._position)

    def _buffer(self, record: SpanRecord, position: int) -> None:
        partition = layout.partition(self._runs.get(record.trace_id, ""), record.start_time)
        key = partition, not _NAMING.isdisjoint(record.attributes)
        buffer = self._spans.get(key)
        if buffer is None:
            buffer = self._spans[key] = _SpanBuffer()
        self._buffered += buffer.add(record, position)
        if len(buffer.spans) >= _PART_ROWS or buffer.size >= _PART_BYTES:
            self._flush(*key)
        elif self._buffered >= _BUFFERED_BYTES:
            self._flush(*max(self._spans, key=lambda key: self._spans[key].size))

    def _flush(self, partition: str, names_others: bool) -> None:
        buffer = self._spans.pop((partition, names_others))
        self._buffered -= buffer.size
        if not self.files:
            with readable(self._place):
                self._mark()
                self._filesystem.pipe_file(f"{self._root}/{UNFINISHED}{self._name}", b"")
        name = layout.file_name(self._name, len(self.files), names_others=names_others)
        path = f"{self._root}/{SPANS}/{partition}/{name}"
        self.files.append(path)
        with readable(self._place):
            self._write_file(path, buffer.table())

    def _finish(self) -> None:
        for trace_id in [*self._waiting]:
            for position, waiting in self._waiting.pop(trace_id):
                self._buffer(waiting, position)
        for key in [*self._spans]:
            self._flush(*key)

    def _end(self) -> None:
        """Remove what says that the write has not ended."""
        if self.files:
            self._filesystem.rm_file(f"{self._root}/{UNFINISHED}{self._name}")

    def _write_file(self, path: str, arrow: Any) -> None:
        from pyarrow import parquet as files

        folder, _, name = path.rpartition("/")
        self._filesystem.makedirs(folder, exist_ok=True)
        is_local = "file" in self._filesystem.protocol  # objects appear as a whole
        partial = f"{folder}/_{name}.{secrets.token_hex(8)}{PARTIAL}" if is_local else path
        with self._filesystem.open(partial, "xb" if is_local else "wb") as file:
            files.write_table(
                arrow, file, row_group_size=_GROUP_ROWS, compression="zstd", write_page_checksum=True
            )
        if is_local:
            self._filesystem.mv(partial, path)

    def _mark(self) -> None:
        """Mark a new dataset."""
        path = f"{self._root}/{DATASET_MARKER}"
        if not self._filesystem.exists(path):
            self._filesystem.pipe_file(path, marker())


class _SpanBuffer:
    """The spans of a partition that are not written yet."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, SpanRecord]] = []
        self.size = 0

    def add(self, record: SpanRecord, position: int) -> int:
        """Add a span; return its size."""
        size = parquet.size_estimate(record)
        self.spans.append((record.trace_id, position, record))
        self.size += size
        return size

    def table(self) -> Any:
        """The spans, those of a trace together: row groups can then be left out by their trace ids."""
        import pyarrow as pa

        self.spans.sort(key=lambda row: row[:2])
        table = parquet.span_table([record for _, _, record in self.spans])
        for place, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):  # engines lack nanoseconds
                table = table.set_column(place, field.name, table.column(place).cast("int64"))
        return table.add_column(0, "position", pa.array([place for _, place, _ in self.spans], pa.int64()))
