"""Writes episodes as the library saves them that they were imported from, or recorded with."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mttp.errors import ConfigureError, MissingExtra
from mttp.model.episodes import Episode
from mttp.otlp.whole_files import replacing

__all__ = ["WritableFormat", "WrittenFile", "write_records"]


class WritableFormat(Protocol):
    """A module that also writes the records of its format; with a `schema`, its Parquet has that schema."""

    TITLE: str
    """The name for people: `verifiers traces`."""
    SUFFIX: str
    """The end of the names of its files: `.jsonl` or `.parquet`."""

    def record(self, episode: Episode, /) -> dict[str, Any]:
        """Return the record of an episode; raises ValueError if it has none."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What was written to a file of another library's format."""

    count: int
    """The number of records."""
    left_out: Mapping[str, int]
    """The number of episodes that have no record, by reason."""


def write_records(
    path: str | os.PathLike[str], episodes: Iterable[Episode], format: WritableFormat
) -> WrittenFile:
    """
    Write the records of episodes, replacing a file that exists; without a record nothing is written.

    Raises ConfigureError for a wrong name of the file, or if Parquet can't hold the records.
    """
    target = Path(path)
    if target.suffix != format.SUFFIX:
        raise ConfigureError(f"{target}: the name of a file of {format.TITLE} ends in {format.SUFFIX}")
    records, left_out = [], Counter[str]()
    for episode in episodes:
        try:
            records.append(format.record(episode))
        except ValueError as error:
            left_out[str(error)] += 1
    if records:
        with replacing(target) as partial:
            if format.SUFFIX == ".jsonl":
                _write_lines(partial, records)
            else:
                _write_parquet(partial, records, format)
    return WrittenFile(len(records), left_out)


def _write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        for record in records:
            line = json.dumps(record, ensure_ascii=False) + "\n"
            file.write(line.encode("utf-8", "backslashreplace"))  # which is JSON's escape of a lone surrogate


def _write_parquet(path: Path, records: Sequence[Mapping[str, Any]], format: WritableFormat) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="writing Parquet") from error
    names = dict.fromkeys(name for record in records for name in record)
    rows = [{name: record.get(name) for name in names} for record in records]
    schema = getattr(format, "schema", lambda: None)()
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError) as error:
        raise ConfigureError(f"Parquet can't hold the records: {error}") from error
