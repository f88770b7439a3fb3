"""Writes partitioned datasets: parts of Parquet files, and the digests of their episodes."""

from __future__ import annotations

import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mttp.codec.conformity import Conformity
from mttp.errors import ReadError
from mttp.model.spans import SpanRecord, without_arrays
from mttp.otlp.recording_files import DATASET_MARKER
from mttp.reading import group_digest, parquet
from mttp.reading.digest import EpisodeDigest
from mttp.reading.engines import layout
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.layout import EPISODES, REST, SPANS, Partition
from mttp.reading.engines.storage import PARTIAL, UNFINISHED, check_dataset, filesystem_of, marker
from mttp.reading.episode_summary import EpisodeSummary
from mttp.reading.group_digest import PlainMisfit
from mttp.semconv import attributes as a

__all__ = ["DatasetWriter", "dataset_writer", "writable"]

_PART_ROWS = 50_000
"""Largest number of spans of one file."""
_PART_BYTES = 1 << 26
_BUFFERED_BYTES = 1 << 28
"""Estimated bytes of spans in memory from which the largest partition is written."""
_GROUP_ROWS = 2_000
"""Rows of a row group of spans: what is read at least to get one episode."""


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

    Spans are written as they come, the digests of the episodes at the end. A `write` that fails removes its
    files.
    """

    def __init__(self, place: str, filesystem: Any, root: str) -> None:
        self._place = place
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._position = time.time_ns()
        self._name = f"{self._position:x}{secrets.token_hex(4)}"
        self._digest = EpisodeDigest(figures=True)
        self._conformity = Conformity()
        self._schemas: set[str] = set()
        """Schema URLs of the scopes so far: one span of each is kept, for the version of the convention."""
        self._runs: dict[str, str] = {}
        """Run by trace id."""
        self._waiting: defaultdict[str, list[tuple[int, SpanRecord]]] = defaultdict(list)
        """Spans of other libraries whose trace has no run yet, by trace id."""
        self._spans: dict[Partition, _SpanBuffer] = {}
        self._buffered = 0
        """Their size, estimated in bytes."""
        self._rows: dict[tuple[str, Partition], _RowBuffer] = {}
        self.files: list[str] = []
        """Paths of the files that were written."""
        self.episodes = 0
        """Number of whole episodes."""

    def write(self, records: Iterable[SpanRecord]) -> int:
        """Write the spans and their digests; return the number of spans."""
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
        self._add_digest(record, self._position)
        if record.trace_id not in self._runs:
            self._waiting[record.trace_id].append((self._position, record))
            return
        for position, waiting in self._waiting.pop(record.trace_id, ()):
            self._buffer(waiting, position)
        self._buffer(record, self._position)

    def _partition(self, record: SpanRecord) -> Partition:
        return layout.partition_of(self._runs.get(record.trace_id, ""), record.start_time)

    # Spans.

    def _buffer(self, record: SpanRecord, position: int) -> None:
        partition = self._partition(record)
        buffer = self._spans.get(partition)
        if buffer is None:
            buffer = self._spans[partition] = _SpanBuffer()
        self._buffered += buffer.add(record, position)
        if len(buffer.spans) >= _PART_ROWS or buffer.size >= _PART_BYTES:
            self._flush(partition)
        elif self._buffered >= _BUFFERED_BYTES:
            self._flush(max(self._spans, key=lambda one: self._spans[one].size))

    def _flush(self, partition: Partition) -> None:
        buffer = self._spans.pop(partition)
        self._buffered -= buffer.size
        self._write_table(SPANS, partition, buffer.table(), rows=_GROUP_ROWS)

    # Digests.

    def _add_digest(self, record: SpanRecord, position: int) -> None:
        kept, wrong = self._conformity.examine(without_arrays(record))
        if wrong:
            misfits = [PlainMisfit(one.kind, one.trace_id, one.message) for one in wrong]
            self._add_rest(record, position, group_digest.encode_items((), misfits))
        is_first = kept.scope.schema_url not in self._schemas
        self._schemas.add(kept.scope.schema_url)
        item = self._digest.add(kept, position, is_first=is_first)
        if isinstance(item, EpisodeSummary):
            self._add_episode(item, position)
        elif item is not None:
            self._add_rest(item, position, group_digest.encode_items([item]))

    def _add_episode(self, item: EpisodeSummary, position: int) -> None:
        figures = item.figures
        assert figures is not None, "the digest has figures"
        self.episodes += 1
        row = layout.episode_row(figures) | {
            "position": position,
            "digest": group_digest.encode_items([item._replace(figures=None)]),
            "figures": group_digest.encode_figures(figures),
        }
        run = self._runs.get(item.trace_id, item.row.run)
        self._add_row(EPISODES, layout.partition_of(run, figures.start_time), row)

    def _add_rest(self, record: SpanRecord, position: int, digest: bytes, **facts: Any) -> None:
        row = {
            "position": position,
            "trace_id": record.trace_id,
            "span_id": record.span_id,
            "start_time": record.start_time,
            "version": group_digest.VERSION,
            "digest": digest,
            "is_episode": bool(facts) or a.SEGMENT_ID in record.attributes,
            "is_of_run": layout.is_of_run(record),
            "about": layout.about(record),
            **facts,
        }
        self._add_row(REST, self._partition(record), row)

    def _add_row(self, table: str, partition: Partition, row: dict[str, Any]) -> None:
        key = table, partition
        if key not in self._rows:
            self._rows[key] = _RowBuffer(layout.schema_of(table))
        self._rows[key].add(row)

    def _finish(self) -> None:
        for trace_id in [*self._waiting]:
            for position, waiting in self._waiting.pop(trace_id):
                self._buffer(waiting, position)
        for partition in [*self._spans]:
            self._flush(partition)
        for position, record in self._digest.rest():
            place = self._digest.place_of(record.trace_id)
            facts = {} if place is None else layout.open_facts(place)
            self._add_rest(record, position, group_digest.encode_items([record]), **facts)
        counts = Counter(partition.run for _, partition in self._rows)
        for (table, partition), rows in self._rows.items():
            digests = counts[partition.run]
            self._write_table(table, partition, rows.table(), rows=10 * _GROUP_ROWS, digests=digests)

    # Files.

    def _write_table(
        self, table: str, partition: Partition, arrow: Any, *, rows: int, digests: int = 0
    ) -> None:
        if not self.files:
            with readable(self._place):
                self._mark()
                self._filesystem.pipe_file(f"{self._root}/{UNFINISHED}{self._name}", b"")
        name = layout.file_name(self._name, len(self.files), digests=digests)
        path = f"{self._root}/{table}/{partition.path}/{name}"
        self.files.append(path)
        with readable(self._place):
            self._write_file(path, arrow, rows)

    def _end(self) -> None:
        """Remove what says that the write has not ended."""
        if self.files:
            self._filesystem.rm_file(f"{self._root}/{UNFINISHED}{self._name}")

    def _write_file(self, path: str, arrow: Any, rows: int) -> None:
        from pyarrow import parquet as files

        folder, _, name = path.rpartition("/")
        self._filesystem.makedirs(folder, exist_ok=True)
        is_local = "file" in self._filesystem.protocol  # objects appear as a whole
        partial = f"{folder}/_{name}.{secrets.token_hex(8)}{PARTIAL}" if is_local else path
        with self._filesystem.open(partial, "xb" if is_local else "wb") as file:
            files.write_table(arrow, file, row_group_size=rows, compression="zstd", write_page_checksum=True)
        if is_local:
            self._filesystem.mv(partial, path)

    def _mark(self) -> None:
        """Mark a new dataset, and write an empty part of each table, so that engines find all three."""
        path = f"{self._root}/{DATASET_MARKER}"
        if self._filesystem.exists(path):
            return
        empty = {name: _RowBuffer(layout.schema_of(name)).table() for name in (EPISODES, REST)}
        for table, arrow in {**empty, SPANS: _SpanBuffer().table()}.items():
            folder = f"{self._root}/{table}/{layout.partition_of('', 0).path}"
            self._write_file(f"{folder}/{layout.file_name(layout.EMPTY_WRITE, 0)}", arrow, 1)
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

        self.spans.sort(key=lambda one: one[:2])
        found = parquet.span_table([record for _, _, record in self.spans])
        for place, field in enumerate(found.schema):
            if pa.types.is_timestamp(field.type):  # engines lack nanoseconds
                found = found.set_column(place, field.name, found.column(place).cast("int64"))
        return found.add_column(0, "position", pa.array([place for _, place, _ in self.spans], pa.int64()))


class _RowBuffer:
    """The rows of a partition of another table, as Arrow, which takes a tenth of the memory of objects."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._tables: list[Any] = []
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _GROUP_ROWS:
            self._pack()

    def _pack(self) -> None:
        import pyarrow as pa

        self._tables.append(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def table(self) -> Any:
        """All rows by position."""
        import pyarrow as pa

        self._pack()
        return pa.concat_tables(self._tables).sort_by("position")
