"""Spans as Parquet and back, losing nothing: a row is a span, a known attribute a column."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.reading.columns import ATTRIBUTES, JSON, SPAN, TEMPLATES, URLS, from_columns, to_columns
from mttp.spans import COUNTED_LISTS, SpanRecord
from mttp.wire.streams import Progress

__all__ = ["notes", "read_blocks", "write"]

_GROUP_ROWS = 20_000
_GROUP_BYTES = 1 << 26
_BATCH_ROWS = 2_000


def write(
    path: str | os.PathLike[str],
    records: Iterable[SpanRecord],
    *,
    notes: Callable[[], Mapping[str, str]] = dict,
) -> int:
    """
    Write the spans, some thousands at a time, compressed by zstd; how many there were.

    `notes` is asked afterwards for what the file should say of itself.
    """
    arrow = _schema()
    from pyarrow import parquet

    count = 0
    with parquet.ParquetWriter(os.fspath(path), arrow, compression="zstd") as writer:
        for group in _groups(records):
            writer.write_table(_table(group, arrow))
            count += len(group)
        writer.add_key_value_metadata(dict(notes()))
    return count


def notes(path: Path) -> dict[str, str]:
    """What the file says of itself."""
    file = _open(path)
    found = file.metadata.metadata or {}
    return {key.decode(): value.decode() for key, value in found.items()}


def read_blocks(
    path: Path, *, arrays: bool, progress: Progress | None = None
) -> Iterator[Iterator[SpanRecord]]:
    """The spans of a file that `write` made, batch by batch; raises ReadError where it is another's."""
    file = _open(path)
    if not set(file.schema_arrow.names) >= SPAN.keys():
        raise ReadError(f"{path}: this Parquet file is not a recording; `mttp convert` makes those that are")
    names = [
        field.name
        for field in file.schema_arrow
        if arrays or field.name in COUNTED_LISTS or not _is_array(field.type)
    ]
    share = path.stat().st_size / max(file.metadata.num_rows, 1)
    for batch in file.iter_batches(_BATCH_ROWS, columns=names):
        if progress is not None:
            progress(round(share * len(batch)))
        yield from_columns(_lists(batch), arrays=arrays)


def _open(path: Path) -> Any:
    pyarrow = _pyarrow(f"reading {path}")
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ReadError(f"{path}: this Parquet file is damaged or cut short: {error}") from error


def _lists(batch: Any) -> dict[str, list[Any]]:
    """The columns that have any value."""
    import pyarrow

    return {
        name: (column.cast(pyarrow.int64()) if SPAN.get(name) == "time" else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count < len(column)
    }


def _is_array(arrow_type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(arrow_type) or types.is_binary(arrow_type))


def _groups(records: Iterable[SpanRecord]) -> Iterator[list[SpanRecord]]:
    """Spans by row group: so many, or as many as weigh so much."""
    group: list[SpanRecord] = []
    weight = 0
    for record in records:
        group.append(record)
        weight += sum(map(_weight, record.attributes.values()))
        if len(group) >= _GROUP_ROWS or weight >= _GROUP_BYTES:
            yield group
            group, weight = [], 0
    if group:
        yield group


def _weight(value: object) -> int:
    if isinstance(value, list):
        return 32 * len(value)
    return len(value) if isinstance(value, (str, bytes)) else 8


def _table(group: list[SpanRecord], arrow: Any) -> Any:
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
