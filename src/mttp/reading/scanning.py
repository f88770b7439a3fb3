"""Iteration over the spans of files, sessions and trace stores in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mttp.codec import summary_fields
from mttp.codec.conformity import Conformity
from mttp.errors import ReadError
from mttp.model.reprs import bounded_repr
from mttp.model.spans import Scope, SpanRecord, without_arrays
from mttp.model.switches import check_switches
from mttp.otlp.recording_files import File, is_parquet, whole
from mttp.otlp.streams import Progress
from mttp.reading import lines
from mttp.reading.completeness import StatesEpisodes, missing_episodes
from mttp.reading.engines import PartitionedDataset, SpanTable
from mttp.reading.lines import Rows
from mttp.reading.problems import Kind, Problem, Problems
from mttp.reading.sources import RecordedSpans, Source, find
from mttp.reading.stores import Store
from mttp.semconv import VERSION, translation
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.reading.decoder_pool import DecoderPool
    from mttp.reading.lines import Columns

__all__ = ["Scan", "scan"]

_Decode = Callable[..., Iterator[lines.Decoded]]

_LARGE = 256 << 20
"""Total size in bytes from which several processes decode faster than one."""


def scan(source: Source, *, arrays: bool = False) -> Scan:
    """
    Iterate over all spans of `source` in the order in which they were written.

    Spans of other instrumentations and repeated spans are included; `source` is that of `mttp.read`.
    Memory is constant however large the files are.
    Without `arrays`, attributes that are arrays, maps or bytes, events and links are skipped, which is
    several times faster; the lists in `mttp.model.spans.KEPT_LISTS` are short and stay, and so do
    columns of reward components.
    Raises ReadError if a source does not exist or is not a recording, the latter during iteration.
    """
    return Scan(source, arrays=arrays)


class Scan:
    """
    An iterator over the spans of a source, as `mttp.model.spans.SpanRecord`s.

    It can be iterated over once. Values of a wrong type are left out and listed in `problems`.
    """

    def __init__(
        self,
        source: Source,
        *,
        arrays: bool,
        strict: bool = False,
        progress: Progress | None = None,
        as_written: bool = False,
        traces: Set[str] | None = None,
        columns: Columns | None = None,
    ) -> None:
        check_switches(ReadError, {"arrays": arrays, "strict": strict})
        if progress is not None and not callable(progress):
            reason = "is not a function; give a function of a number of bytes"
            raise ReadError(f"progress={bounded_repr(progress):.80} {reason}")
        self._items = find(source)
        self._traces = traces
        """Ids of the traces that are wanted; sources that can't select yield all."""
        self._columns = columns
        """What other processes make of spans where they decode them; the caller gets `Rows`, too."""
        self._arrays = arrays
        self._progress = progress
        self._problems = Problems(strict=strict)
        self._as_written = as_written
        self._decode: _Decode = self._decode_here
        self._records = self._read()

    @property
    def sources(self) -> list[Path]:
        """Paths of the files, in order."""
        return [item.path for item in self._items if isinstance(item, File)]

    @property
    def stores(self) -> list[str]:
        """Trace stores, as `scheme:url`, datasets and tables, in order."""
        kinds = (Store, PartitionedDataset, SpanTable)
        return [repr(item) for item in self._items if isinstance(item, kinds)]

    @property
    def selects(self) -> bool:
        """Whether the address of a dataset or table selects some of its episodes."""
        return any(
            not item.address.selection.is_everything
            for item in self._items
            if isinstance(item, (PartitionedDataset, SpanTable))
        )

    @property
    def has_whole_runs(self) -> bool:
        """Whether the caller asks for all episodes of a run, or for none."""
        paths = {item.path for item in self._items if isinstance(item, File)}
        return all(
            item.address.has_whole_runs
            if isinstance(item, (Store, PartitionedDataset, SpanTable))
            else not isinstance(item, File) or _is_beside(item.path, paths)
            for item in self._items
        )

    def add_missing_episodes(self, runs: Iterable[StatesEpisodes], episodes: Mapping[str, int]) -> bool:
        """Add a problem for each run of which episodes are missing; return whether there is one."""
        missing = [*missing_episodes(runs, episodes)] if self.has_whole_runs else []
        for message in missing:
            self.add_problem("missing_episodes", message)
        return bool(missing)

    @property
    def problems(self) -> list[Problem]:
        """Problems of the spans that were read so far."""
        return self._problems.all()

    def add_problem(
        self, kind: Kind, message: str, *, file: str | None = None, trace_id: str | None = None
    ) -> None:
        """Add a problem of the spans."""
        self._problems.add(Problem(kind=kind, message=message, file=file, trace_id=trace_id))

    def __iter__(self) -> Iterator[SpanRecord]:
        return self._records

    def __next__(self) -> SpanRecord:
        return next(self._records)

    def _read(self) -> Iterator[SpanRecord]:
        readable = 0
        with self._decoder() as self._decode:
            for item in self._items:
                try:
                    readable += yield from self._spans(item)
                except OSError as error:
                    where = error.filename or (item.path if isinstance(item, File) else item)
                    raise ReadError(f"{where}: {error.strerror or error}") from error
        if not readable:
            raise ReadError("; ".join(map(str, self.problems[:3])) + ": no recording was found")

    @contextmanager
    def _decoder(self) -> Iterator[_Decode]:
        """The function that decodes a file of lines: by a pool of processes if there is much to read."""
        paths = [path for path in self.sources if path.is_file()]
        sizes = {path: path.stat().st_size for path in paths}
        is_large = sum(sizes.values()) >= self._large and not self._as_written
        pool = self._pool(sizes) if is_large else None
        if pool is None:
            yield self._decode_here
            return
        try:
            yield pool.decode
        finally:
            pool.stop()

    @property
    def _decode_here(self) -> _Decode:
        return partial(lines.decode, arrays=self._arrays, as_written=self._as_written, columns=self._columns)

    @property
    def _large(self) -> float:
        """Total size in bytes from which several processes decode; arrays cost more to hand over."""
        return _LARGE if self._arrays and self._columns is None else _LARGE / 4

    def _pool(self, sizes: dict[Path, int]) -> DecoderPool | None:
        from mttp.reading.decoder_pool import start  # most recordings are small and need no processes

        return start(sizes, arrays=self._arrays, columns=self._columns)

    def _spans(self, item: File | RecordedSpans) -> Generator[Any, None, bool]:
        """The item's spans; an unknown version of the convention becomes one problem per item."""
        scope: Scope | None = None
        is_noted = False
        blocks = self._blocks(item)
        while True:
            try:
                block = next(blocks)
            except StopIteration as end:
                return bool(end.value)
            for record in block:
                if isinstance(record, Rows):
                    yield record
                    continue
                if record.scope is not scope:
                    scope = record.scope
                    is_noted = is_noted or self._note_version(scope.schema_url, item)
                if record.name and a.GAP_SPANS in record.attributes:
                    self._note_gap(record, item)
                yield record

    def _blocks(self, item: File | RecordedSpans) -> Generator[Iterable[Any], None, bool]:
        """Yield the item's spans block by block; return whether the item is a recording."""
        if isinstance(item, (PartitionedDataset, SpanTable)):
            if self._columns is not None and not self._arrays:
                batches = item.batches(arrays=False, traces=self._traces)
                yield from self._rows(
                    batches, self._columns, partial(item.records_of, arrays=False), repr(item)
                )
            else:
                yield self._conforming(item.records(arrays=self._arrays, traces=self._traces), repr(item))
            if isinstance(item, SpanTable):
                self._add_losses(item)
            elif item.unfinished is not None:
                self.add_problem("unfinished_conversion", item.unfinished, file=repr(item))
            return True
        if isinstance(item, RecordedSpans):
            records = item.records() if self._arrays else map(without_arrays, item.records())
            yield self._conforming(records, repr(item) if isinstance(item, Store) else None)
            if isinstance(item, Store):
                self._add_losses(item)
            return True
        if is_parquet(item.path):
            return (yield from self._parquet(item))
        decoded = self._decode(item.path, progress=self._progress)
        return (yield from lines.read_blocks(item, decoded, self._problems))

    def _add_losses(self, item: Store | SpanTable) -> None:
        for message in item.losses:
            self._problems.add(Problem(kind="store_loss", message=message, file=repr(item)))

    def _conforming(self, records: Iterable[SpanRecord], source: str | None) -> Iterator[SpanRecord]:
        """The spans without invalid values; spans of lines are checked when they are decoded."""
        conformity = Conformity(as_written=self._as_written)
        for record in records:
            conforming, misfits = conformity.examine(record)
            for misfit in misfits:
                self._problems.add(
                    Problem(kind=misfit.kind, message=misfit.message, file=source, trace_id=misfit.trace_id)
                )
            yield conforming

    def _parquet(self, item: File) -> Generator[Iterable[Any], None, bool]:
        """The blocks of a Parquet file; only a file that the caller named raises if it is damaged."""
        from mttp.reading import parquet

        try:
            has_checksum = parquet.has_checksum(item.path)
            if self._columns is not None and has_checksum and not self._arrays:
                batches = parquet.read_batches(item.path, progress=self._progress)
                yield from self._rows(
                    batches, self._columns, partial(parquet.records, item.path), str(item.path)
                )
            else:
                for block in parquet.read_blocks(item.path, arrays=self._arrays, progress=self._progress):
                    yield self._conforming(block, str(item.path))
        except parquet.FileError as error:
            if item.named:
                raise
            self._problems.add(Problem(kind=error.kind, message=error.reason, file=str(item.path)))
            return False
        if not has_checksum:
            message = "the file has no checksum, since another program wrote it: damage would not be detected"
            self._problems.add(Problem(kind="unverified_file", message=message, file=str(item.path)))
        return True

    def _rows(
        self,
        batches: Iterable[Any],
        columns: Columns,
        records: Callable[[Any], Iterable[SpanRecord]],
        source: str,
    ) -> Iterator[Iterable[Any]]:
        """Yield the spans of Arrow batches, most of them as rows."""
        rows = import_module(columns.of_batches).BatchRows(*columns.arguments)
        for batch in batches:
            yield rows.items(
                batch,
                records=records,
                conforming=lambda batch: self._conforming(records(batch), source),
            )

    def _note_gap(self, record: SpanRecord, item: File | RecordedSpans) -> None:
        lost = summary_fields.gap(record)
        if lost is not None:
            message = f"the recorder lost {lost.spans} spans of {lost.episodes} episodes: {lost.reason}"
            self._problems.add(Problem(kind="lost_spans", message=message, file=_file(item)))

    def _note_version(self, schema_url: str, item: File | RecordedSpans) -> bool:
        """Add a problem for a version of the convention that is not known; return whether there is one."""
        age = translation.age(schema_url)
        if age not in ("newer", "unknown"):
            return False
        kind: Kind = "newer_convention" if age == "newer" else "unknown_convention"
        version = schema_url.removeprefix(translation.SCHEMA_PREFIX)
        advice = ": update mttp" if age == "newer" else ""
        message = f"spans follow version {version!r:.40} of the convention, mttp here knows {VERSION}{advice}"
        self._problems.add(Problem(kind=kind, message=message, file=_file(item)))
        return True


def _file(item: File | RecordedSpans) -> str | None:
    return str(item.path) if isinstance(item, File) else None


def _is_beside(path: Path, paths: Set[Path]) -> bool:
    """Return whether the file that a rotated part belongs to is read, too, or is not there."""
    file = whole(path)
    return file is None or file in paths or not file.exists()
