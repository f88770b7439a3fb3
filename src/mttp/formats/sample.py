"""The beginning of a file, by which its format is recognized."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mttp.errors import MissingExtra, ReadError
from mttp.formats.json_records import first_record
from mttp.otlp.recording_files import is_parquet

__all__ = ["FileSample", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSample:
    """What a file begins with."""

    path: Path
    """The file."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Its first JSON object, or its first row of Parquet; empty if it has none."""
    columns: tuple[str, ...] = ()
    """The columns of a Parquet file."""
    members: tuple[str, ...] = ()
    """The names of the members of a zip file."""


def sample(path: Path) -> FileSample:
    """Return what a file begins with; raises ReadError if it can't be opened."""
    if not path.is_file():  # a pipe would block, and can be read only once
        raise ReadError(f"{path} is not a regular file; give a file of another library")
    try:
        if is_parquet(path):
            return _parquet(path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return FileSample(path=path, members=tuple(archive.namelist()))
        return FileSample(path=path, row=first_record(path))
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ReadError(f"{path}: {error}") from error


def _parquet(path: Path) -> FileSample:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="reading Parquet") from error
    try:
        with pq.ParquetFile(path) as file:
            columns = tuple(file.schema_arrow.names)
            first = next(file.iter_batches(batch_size=1), None)
            rows = [] if first is None else first.to_pylist()
    except pa.ArrowException as error:
        raise ReadError(f"{path}: {error}") from error
    return FileSample(path=path, columns=columns, row=rows[0] if rows else {})
