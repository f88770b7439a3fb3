"""The layout of a partitioned dataset: the names of its folders and files."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import unquote

from mttp.semconv import VERSION

__all__ = [
    "EMPTY_WRITE",
    "SPANS",
    "Partition",
    "file_name",
    "is_empty",
    "names_no_others",
    "partition_at",
    "partition_of",
    "partition_run",
    "version_of",
]

SPANS: Final = "spans"
"""The folder of the table, which has a row per span; earlier versions wrote others beside it."""
EMPTY_WRITE: Final = "empty"
"""The name of the write whose file has no rows, so that engines find the table."""
_OWN = "-own-v"
_NO_RUN = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x20\"#%'*/:=?\\\[\]^{}\x7f]")
_LONGEST = 200
"""Bytes of a folder's name after `run=`; file systems allow 255 in all."""
_LAST = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


def file_name(write: str, number: int, *, names_others: bool) -> str:
    """
    Return the name of a file, from that of the write: all files of one write begin alike.

    It tells whether spans in it may name episodes of other traces.
    """
    return f"{write}-{number:05d}{'-about-v' if names_others else _OWN}{VERSION}.parquet"


def names_no_others(path: str) -> bool:
    """Return whether no span of a file names an episode of another trace, as groups and annotations do."""
    return _OWN in path.rpartition("/")[2]


def is_empty(path: str) -> bool:
    """Return whether a file is the one without rows."""
    return path.rpartition("/")[2].startswith(f"{EMPTY_WRITE}-")


def version_of(path: str) -> str:
    """Return the version in the name of a file, by which its columns are known."""
    return path.rpartition("-v")[2]


class Partition(NamedTuple):
    """A partition of a table."""

    run: str
    """The run as `partition_run` names it; empty without one."""
    date: str
    """The UTC date of the start, such as `2026-01-31`."""

    @property
    def path(self) -> str:
        """Its folder below the table's, as Hive and engines name it."""
        return f"run={_escaped(self.run) or _NO_RUN}/date={self.date}"


def partition_run(run: str) -> str:
    """The run in the names of its folders: its id, or a digest of an id that no folder can have as a name."""
    if run != _NO_RUN and len(_escaped(run).encode(errors="replace")) <= _LONGEST:
        return run
    return f"{run[:16]}-{sha256(run.encode(errors='replace')).hexdigest()}"


def _escaped(run: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", run)


def partition_at(path: str) -> Partition:
    """The partition of a file, from the names of its folders."""
    *_, run, date, _ = path.split("/")
    name = run.removeprefix("run=")
    return Partition("" if name == _NO_RUN else unquote(name), date.removeprefix("date="))


def partition_of(run: str, start_time: int) -> Partition:
    """The partition of a run's spans, for a start in nanoseconds since the Unix epoch."""
    seconds = min(max(start_time / 1e9, 0), _LAST)
    return Partition(partition_run(run), datetime.fromtimestamp(seconds, timezone.utc).date().isoformat())
