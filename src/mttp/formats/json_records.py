"""Reads the records of JSON lines, of a JSON document and of Parquet, each with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mttp.errors import MissingExtra, ReadError
from mttp.formats.records import UnreadableRecord
from mttp.otlp.recording_files import is_parquet
from mttp.otlp.streams import Cut, Skipped, StreamLine, read_lines

if TYPE_CHECKING:
    from mttp.formats.records import ImportedRecord
    from mttp.model.episodes import Episode

__all__ = ["episodes", "first_record", "json_document", "json_lines", "lines", "parquet_rows", "placed"]

_DOCUMENT_BYTES = 1 << 30
"""Size of a JSON document that is read whole."""


def episodes(
    records: Iterator[tuple[str, Any]], episode: Callable[[Mapping[str, Any]], Episode]
) -> Iterator[ImportedRecord]:
    """
    Yield the episode of each record, and an `UnreadableRecord` where there is none.

    `records` are places and values; `episode` raises ValueError, TypeError or LookupError for a wrong record.
    """
    for place, record in records:
        if isinstance(record, UnreadableRecord):
            yield record
        elif not isinstance(record, Mapping):
            yield UnreadableRecord(place, f"is {type(record).__name__}, not an object")
        else:
            try:
                yield episode(record)
            except (ValueError, TypeError, LookupError, OverflowError) as error:
                yield UnreadableRecord(place, f"{type(error).__name__}: {error}")


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """
    Yield the value of each line with its place; an `UnreadableRecord` for a line that is not JSON.

    The items of a list have a place each.
    """
    for line in lines(path):
        place = f"line {line.number}"
        if isinstance(line, (Skipped, Cut)):
            yield place, UnreadableRecord(place, line.reason)
            continue
        try:
            value = json.loads(line.content)
        except (ValueError, RecursionError) as error:
            yield place, UnreadableRecord(place, f"is not JSON: {error}")
            continue
        if isinstance(value, list):
            yield from ((f"{place}, item {number}", item) for number, item in enumerate(value, 1))
        else:
            yield place, value


def json_document(path: Path) -> Any:
    """Return the value of a JSON document; raises ReadError if the file does not hold one."""
    try:
        if path.stat().st_size > _DOCUMENT_BYTES:
            raise ReadError(f"{path} has more than {_DOCUMENT_BYTES:,} bytes; split it into JSON lines")
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ReadError(f"{path} is not a JSON document: {error}") from error


def placed(path: Path) -> Iterator[tuple[str, Any]]:
    """
    Yield the rows of JSON lines or Parquet, each with its place, which is also its field `_place`.

    That place begins with the names of the file and two folders, which tells apart equal rows of two files.
    """
    name = "/".join(path.parts[-3:])
    for place, row in parquet_rows(path) if is_parquet(path) else json_lines(path):
        yield place, {**row, "_place": f"{name} {place}"} if isinstance(row, Mapping) else row


def first_record(path: Path) -> Mapping[str, Any]:
    """Return the first object of JSON lines or of a JSON document; empty if there is none."""
    line = next(lines(path), None)
    if line is None or isinstance(line, Skipped):
        return {}
    try:
        record = json.loads(line.content)
    except (ValueError, RecursionError):
        return _first_of_document(path)
    if isinstance(record, list):
        record = record[0] if record else {}
    return record if isinstance(record, Mapping) else {}


def parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a Parquet file with their places; raises ReadError if it can't be read."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="reading Parquet") from error
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise ReadError(f"{path}: row {number + 1}: {error}") from error


def lines(path: Path) -> Iterator[StreamLine | Skipped | Cut]:
    """Yield the lines of a file; raises ReadError if it can't be read."""
    try:
        yield from read_lines(path)
    except OSError as error:
        raise ReadError(f"{path}: {error}") from error


def _first_of_document(path: Path) -> Mapping[str, Any]:
    """Return the object, or the first object of the list, of a document of several lines."""
    with path.open("rb") as file:
        if file.read(1 << 10).lstrip()[:1] not in (b"{", b"["):
            return {}
    try:
        record = json_document(path)
    except ReadError:
        return {}
    if isinstance(record, list):
        record = record[0] if record else {}
    return record if isinstance(record, Mapping) else {}
