"""
Writes and reads spans as Parquet, without loss: a row is a span, a known attribute a column.

A file has a checksum between the magic bytes and the first row group, which Parquet readers skip.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from mttp import formats
from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import KEPT_LISTS, SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
from mttp.reading.columns import JSON, SPAN, URLS, from_columns, to_columns

__all__ = [
    "FileError",
    "check_spans",
    "checked",
    "has_checksum",
    "read_batches",
    "read_blocks",
    "read_traces",
    "records",
    "size_estimate",
    "span_columns",
    "span_table",
    "spans_of",
    "write",
]

_GROUP_ROWS = 20_000
_GROUP_BYTES = 1 << 26
_BATCH_ROWS = 2_000
_BATCH_BYTES = 4 << 20
"""Uncompressed bytes of a larger batch, for tables: the fewer batches, the less each row costs."""
_MOST_BATCH_ROWS = 16_000
_START = b"PAR1mttp sha256 "
"""The first bytes of a file; the SHA-256 digest of the bytes after it, in hex, and a newline follow."""
_DIGEST_SIZE = 64
_PIECE = 1 << 20
_OF_SCOPES = ("scope", "resource", *URLS)
"""Columns of long texts that most spans have in common."""
_ID_PATTERNS = {
    "trace_id": "^[0-9a-f]{32}$",
    "span_id": "^[0-9a-f]{16}$",
    "parent_id": "^([0-9a-f]{16})?$",
}


class FileError(ReadError):
    """A Parquet file can't be read as a recording; the message starts with its path."""

    def __init__(self, kind: Literal["damaged_file", "not_traces"], path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.kind: Literal["damaged_file", "not_traces"] = kind
        """`damaged_file`, or `not_traces` if the file is not a recording."""
        self.reason = reason
        """What is wrong, for people."""


def write(path: str | os.PathLike[str], records: Iterable[SpanRecord]) -> int:
    """Write the spans in row groups, compressed by zstd; return their number."""
    pyarrow = _pyarrow("writing Parquet")
    from pyarrow import parquet

    arrow = _schema()

    count = 0
    with (
        pyarrow.OSFile(os.fspath(path), "wb") as file,
        parquet.ParquetWriter(file, arrow, compression="zstd") as writer,
    ):
        file.write(_START[4:] + b"0" * _DIGEST_SIZE + b"\n")
        for group in _groups(records):
            writer.write_table(_table(group, arrow))
            count += len(group)
    _seal(Path(path))
    return count


def _seal(path: Path) -> None:
    """Write the checksum into the space reserved for it."""
    with path.open("r+b") as file:
        file.seek(len(_START) + _DIGEST_SIZE)
        digest = _digest(file)
        file.seek(len(_START))
        file.write(digest)


def has_checksum(path: Path) -> bool:
    """
    Whether the file has a checksum; files of other programs have none.

    Raises FileError if the checksum does not match.
    """
    with path.open("rb") as file:
        if file.read(len(_START)) != _START:
            return False
        if file.read(_DIGEST_SIZE) == _digest(file):
            return True
    raise _damaged(path, "its checksum is wrong")


def _digest(file: IO[bytes]) -> bytes:
    """The digest of the rest of a file, in hex."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest().encode()


def _damaged(path: Path, reason: object) -> FileError:
    advice = "copy it again, or write it again with `mttp convert`"
    return FileError("damaged_file", path, f"this Parquet file is damaged or cut short: {reason}; {advice}")


@contextmanager
def _pyarrow_reads(path: Path) -> Iterator[None]:
    """Raise FileError for any exception: pyarrow raises many types for damaged files."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        raise _damaged(path, str(error) or type(error).__name__) from error


def read_blocks(path: Path, *, arrays: bool, progress: Progress | None = None) -> Iterator[list[SpanRecord]]:
    """The spans of a file, batch by batch; raises FileError if it is damaged or not a recording."""
    file = _open(path)
    for batch in _batches(path, file, arrays=arrays, progress=progress):
        with _pyarrow_reads(path):
            spans = spans_of(batch, arrays=arrays)
        yield spans


def read_batches(path: Path, *, progress: Progress | None = None) -> Iterator[Any]:
    """
    The spans of a file whose checksum is right as Arrow batches, without columns of arrays or without values.

    Raises FileError if it is not a recording.
    """
    for batch in _batches(path, _open(path), arrays=False, progress=progress, is_whole=True):
        with _pyarrow_reads(path):
            spans = checked(batch)
            spans.validate(full=True)
        yield spans


def records(path: Path, batch: Any) -> list[SpanRecord]:
    """The spans of a batch, without arrays; raises FileError for invalid attributes."""
    with _pyarrow_reads(path):
        return spans_of(batch, arrays=False)


def read_traces(path: Path, trace_ids: Set[str]) -> Iterator[SpanRecord]:
    """The spans of some traces, with arrays; only the row groups that hold them are read as a whole."""
    file = _open(path)
    with _pyarrow_reads(path):
        groups = [
            number
            for number in range(file.metadata.num_row_groups)
            if _holds(file.read_row_group(number, columns=["trace_id"]).column(0), trace_ids)
        ]
    for batch in _batches(path, file, groups=groups, trace_ids=trace_ids):
        with _pyarrow_reads(path):
            spans = spans_of(batch, arrays=True)
        yield from spans


def _holds(column: Any, values: Set[str]) -> bool:
    import pyarrow
    from pyarrow import compute

    return bool(compute.any(compute.is_in(column, value_set=pyarrow.array([*values], column.type))).as_py())


def _batches(
    path: Path,
    file: Any,
    *,
    arrays: bool = True,
    groups: Sequence[int] | None = None,
    progress: Progress | None = None,
    trace_ids: Set[str] | None = None,
    is_whole: bool = False,
) -> Iterator[Any]:
    """
    The Arrow batches of row groups, by default all, with the columns of spans.

    Of a file that `is_whole`, columns without a value are left out: pyarrow may crash on damaged statistics.
    """
    import pyarrow
    from pyarrow import compute

    with _pyarrow_reads(path):
        names = span_columns(file.schema_arrow, arrays=arrays)
        if not SPAN.keys() <= set(names):
            advice = formats.hint(path) or "`mttp convert` writes recordings as Parquet"
            reason = f"this Parquet file is not a recording; {advice}"
            raise FileError("not_traces", path, reason)
        row_bytes = path.stat().st_size / max(file.metadata.num_rows, 1)
        for group in range(file.metadata.num_row_groups) if groups is None else groups:
            rows, empty = _BATCH_ROWS, set[str]()
            if is_whole:
                size = file.metadata.row_group(group).total_byte_size
                rows_of_size = _BATCH_BYTES * file.metadata.row_group(group).num_rows // max(size, 1)
                rows = min(max(_BATCH_ROWS, rows_of_size), _MOST_BATCH_ROWS)
                empty = _columns_without_values(file, group)
            present = [name for name in names if name in SPAN or name not in empty]
            for batch in file.iter_batches(rows, row_groups=[group], columns=present):
                if progress is not None:
                    progress(round(row_bytes * len(batch)))
                if trace_ids is not None:
                    ids = pyarrow.array([*trace_ids], batch.column("trace_id").type)
                    batch = batch.filter(compute.is_in(batch.column("trace_id"), value_set=ids))
                if len(batch):
                    yield batch.select(present)


def _columns_without_values(file: Any, group: int) -> set[str]:
    """The columns of which no row of a row group has a value, as far as the file says so; not of lists."""
    from pyarrow import types

    empty, first, block = set(), 0, file.metadata.row_group(group)
    for field in file.schema_arrow:
        statistics = None if types.is_list(field.type) else block.column(first).statistics
        if statistics is not None and statistics.has_null_count and statistics.null_count == block.num_rows:
            empty.add(field.name)
        first += _leaves(field.type)
    return empty


def _leaves(arrow_type: Any) -> int:
    """The number of columns that a Parquet file has for a type."""
    fields = [arrow_type.field(number).type for number in range(arrow_type.num_fields)]
    return sum(map(_leaves, fields)) or 1


def span_columns(schema: Any, *, arrays: bool) -> list[str]:
    """The columns of an Arrow schema that spans are made of; without `arrays`, those without arrays."""
    known = _schema().names
    return [
        field.name
        for field in schema
        if (field.name in known or _is_of_later_version(field))
        and (arrays or field.name in KEPT_LISTS or not _is_array(field.type))
    ]


def spans_of(batch: Any, *, arrays: bool) -> list[SpanRecord]:
    """The spans of an Arrow batch of `span_columns`; raises ValueError for invalid ids and times."""
    from pyarrow import types

    spans = checked(batch)
    columns = dict(zip(spans.schema.names, spans.columns, strict=True))
    maps = {field.name for field in spans.schema if types.is_map(field.type)}
    return list(from_columns(_lists(columns), arrays=arrays, maps=maps))


def checked(batch: Any) -> Any:
    """The batch with the types of our columns; raises ValueError for invalid ids and times."""
    import pyarrow

    schema = _schema()
    expected = dict(zip(schema.names, schema.types, strict=True))
    columns = {
        name: column if _is_shared(name, column) else column.cast(expected.get(name, column.type))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    check_spans(columns)
    return pyarrow.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def span_table(records: Sequence[SpanRecord]) -> Any:
    """The spans as an Arrow table; raises ReadError for times beyond 64 bits."""
    _pyarrow("writing Parquet")
    return _table(records, _schema())


def check_spans(columns: Mapping[str, Any]) -> None:
    """Raise ValueError unless every span has all fields, with valid ids and times."""
    from pyarrow import compute

    for name in SPAN:
        if columns[name].null_count:
            raise ValueError(f"a span has no {name}")
    for name, pattern in _ID_PATTERNS.items():
        if not compute.all(compute.match_substring_regex(columns[name], pattern)).as_py():
            raise ValueError(f"{name} is not an id in every span")
    for name, type_ in SPAN.items():
        if type_ == "time" and (compute.min(columns[name].cast("int64")).as_py() or 0) < 0:
            raise ValueError(f"{name} is before 1970")


def _open(path: Path) -> Any:
    _pyarrow(f"reading {path}")
    from pyarrow import parquet

    with _pyarrow_reads(path):
        file = parquet.ParquetFile(path)
        texts = [
            field.name for field in file.schema_arrow if field.name in _OF_SCOPES and _is_text(field.type)
        ]
        return parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts)


def _lists(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns with a value, as lists."""
    return {
        name: (column.cast("int64") if SPAN.get(name) == "time" else column).to_pylist()
        for name, column in columns.items()
        if column.null_count < len(column)
    }


def _is_text(arrow_type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(arrow_type))


def _is_shared(name: str, column: Any) -> bool:
    """Whether a column has each text of scopes once."""
    from pyarrow import types

    return name in _OF_SCOPES and types.is_dictionary(column.type) and _is_text(column.type.value_type)


def _is_array(arrow_type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(arrow_type) or types.is_binary(arrow_type))


def _is_of_later_version(field: Any) -> bool:
    """Whether a column is an attribute that this version does not know: only attributes have dots."""
    from pyarrow import types

    of_values = field.type
    if types.is_list(of_values):
        of_values = of_values.value_type
    elif types.is_map(of_values):
        of_values = of_values.item_type
    kinds = (types.is_string, types.is_int64, types.is_float64, types.is_boolean, types.is_binary)
    return "." in field.name and any(is_kind(of_values) for is_kind in kinds)


def _groups(records: Iterable[SpanRecord]) -> Iterator[list[SpanRecord]]:
    """Groups of at most `_GROUP_ROWS` spans and about `_GROUP_BYTES` bytes."""
    group: list[SpanRecord] = []
    size = 0
    for record in records:
        group.append(record)
        size += size_estimate(record)
        if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def size_estimate(record: SpanRecord) -> int:
    """About how many bytes the attributes of a span take in memory."""
    return sum(map(_size_of, record.attributes.values()))


def _size_of(value: object) -> int:
    if isinstance(value, list):
        return 32 * len(value)
    return len(value) if isinstance(value, (str, bytes)) else 8


def _table(group: Sequence[SpanRecord], arrow: Any) -> Any:
    import pyarrow

    columns = to_columns(group)
    try:
        arrays = [
            pyarrow.array(columns[field.name], field.type)
            if field.name in columns
            else pyarrow.nulls(len(group), field.type)
            for field in arrow
        ]
    except OverflowError as error:
        raise ReadError(f"a span's time or flags are beyond 64 bits: {error}") from error
    return pyarrow.Table.from_arrays(arrays, schema=arrow)


@cache
def _schema() -> Any:
    import pyarrow

    scalars = {
        "string": pyarrow.string(),
        "int": pyarrow.int64(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "bytes": pyarrow.binary(),
        "time": pyarrow.timestamp("ns", tz="UTC"),
    }
    lists = {f"{name}[]": pyarrow.list_(scalar) for name, scalar in scalars.items()}
    fields = {name: scalars[type_] for name, type_ in SPAN.items()}
    fields |= {name: (scalars | lists)[type_] for name, type_ in ATTRIBUTES.items()}
    fields |= {prefix: pyarrow.map_(pyarrow.string(), scalars[type_]) for prefix, type_ in TEMPLATES.items()}
    fields |= {name: pyarrow.string() for name in (*JSON, *URLS)}
    return pyarrow.schema(list(fields.items()))


def _pyarrow(purpose: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose=purpose) from error
    return pyarrow
