"""
Writes and reads spans as Parquet, without loss: a row is a span, a known attribute a column.

A file has a checksum between the magic bytes and the first row group, which Parquet readers skip.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from mttp import formats
from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import KEPT_LISTS, SpanRecord
from mttp.otlp.streams import Progress
from mttp.reading.columns import ATTRIBUTES, JSON, SPAN, TEMPLATES, URLS, from_columns, to_columns

__all__ = [
    "FileError",
    "has_checksum",
    "read_blocks",
    "read_traces",
    "size_estimate",
    "span_columns",
    "span_table",
    "spans_of",
    "write",
]

_GROUP_ROWS = 20_000
_GROUP_BYTES = 1 << 26
_BATCH_ROWS = 2_000
_START = b"PAR1mttp sha256 "
"""The first bytes of a file; the SHA-256 digest of the bytes after it, in hex, and a newline follow."""
_DIGEST_SIZE = 64
_PIECE = 1 << 20
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
    arrow = _schema()
    import pyarrow
    from pyarrow import parquet

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
    yield from _blocks(path, file, range(file.metadata.num_row_groups), arrays=arrays, progress=progress)


def read_traces(path: Path, trace_ids: Set[str]) -> Iterator[SpanRecord]:
    """The spans of some traces, with arrays; only the row groups that hold them are read as a whole."""
    file = _open(path)
    with _pyarrow_reads(path):
        groups = [
            number
            for number in range(file.metadata.num_row_groups)
            if _holds(file.read_row_group(number, columns=["trace_id"]).column(0), trace_ids)
        ]
    for number in groups:
        for block in _blocks(path, file, [number], arrays=True, trace_ids=trace_ids):
            yield from block


def _holds(column: Any, values: Set[str]) -> bool:
    import pyarrow
    from pyarrow import compute

    return bool(compute.any(compute.is_in(column, value_set=pyarrow.array([*values], column.type))).as_py())


def _blocks(
    path: Path,
    file: Any,
    groups: Sequence[int],
    *,
    arrays: bool,
    progress: Progress | None = None,
    trace_ids: Set[str] | None = None,
) -> Iterator[list[SpanRecord]]:
    import pyarrow
    from pyarrow import compute

    with _pyarrow_reads(path):
        names = span_columns(file.schema_arrow, arrays=arrays)
        if not SPAN.keys() <= set(names):
            advice = formats.hint(path) or "`mttp convert` writes recordings as Parquet"
            reason = f"this Parquet file is not a recording; {advice}"
            raise FileError("not_traces", path, reason)
        row_bytes = path.stat().st_size / max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[*groups], columns=names):
            if progress is not None:
                progress(round(row_bytes * len(batch)))
            if trace_ids is not None:
                wanted = pyarrow.array([*trace_ids], batch.column("trace_id").type)
                batch = batch.filter(compute.is_in(batch.column("trace_id"), value_set=wanted))
                if not len(batch):
                    continue
            yield spans_of(batch.select(names), arrays=arrays)


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

    schema = _schema()
    columns = {
        name: batch.column(name).cast(schema.field(name).type) if name in schema.names else batch.column(name)
        for name in batch.schema.names
    }
    _check(columns)
    maps = {field.name for field in batch.schema if types.is_map(field.type)}
    return list(from_columns(_lists(columns), arrays=arrays, maps=maps))


def span_table(records: Sequence[SpanRecord]) -> Any:
    """The spans as an Arrow table; raises ReadError for times beyond 64 bits."""
    return _table(records, _schema())


def _check(columns: Mapping[str, Any]) -> None:
    """Raise ValueError unless every span has all fields, with valid ids and times."""
    from pyarrow import compute

    for name in SPAN:
        if columns[name].null_count:
            raise ValueError(f"a span has no {name}")
    for name, pattern in _ID_PATTERNS.items():
        if not compute.all(compute.match_substring_regex(columns[name], pattern)).as_py():
            raise ValueError(f"{name} is not an id in every span")
    for name, type_ in SPAN.items():
        if type_ == "time" and compute.any(compute.less(columns[name].cast("int64"), 0)).as_py():
            raise ValueError(f"{name} is before 1970")


def _open(path: Path) -> Any:
    _pyarrow(f"reading {path}")
    from pyarrow import parquet

    with _pyarrow_reads(path):
        return parquet.ParquetFile(path)


def _lists(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns with a value, as lists."""
    return {
        name: (column.cast("int64") if SPAN.get(name) == "time" else column).to_pylist()
        for name, column in columns.items()
        if column.null_count < len(column)
    }


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


def _schema() -> Any:
    pyarrow = _pyarrow("writing Parquet")
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
