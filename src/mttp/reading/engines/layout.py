"""The layout of a partitioned dataset: the names of its folders and files."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from hashlib import sha256
from typing import Final
from urllib.parse import unquote

from mttp.semconv import VERSION

__all__ = ["SPANS", "file_name", "names_no_others", "partition", "partition_run", "run_at", "version_of"]

SPANS: Final = "spans"
"""The folder of the table, which has a row per span; earlier versions wrote others beside it."""
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


def version_of(path: str) -> str:
    """Return the version in the name of a file, by which its columns are known."""
    return path.rpartition("-v")[2]


def partition(run: str, start_time: int) -> str:
    """Return the folder of a run's spans that start then, in nanoseconds since the Unix epoch."""
    seconds = min(max(start_time / 1e9, 0), _LAST)
    date = datetime.fromtimestamp(seconds, timezone.utc).date().isoformat()
    return f"run={_escaped(partition_run(run)) or _NO_RUN}/date={date}"


def run_at(path: str) -> str:
    """Return the run of a file as `partition_run` names it, from its folders; empty without one."""
    name = path.split("/")[-3].removeprefix("run=")
    return "" if name == _NO_RUN else unquote(name)


def partition_run(run: str) -> str:
    """Return the run in the names of its folders: its id, or a digest of one that no folder can have."""
    if run != _NO_RUN and len(_escaped(run).encode(errors="replace")) <= _LONGEST:
        return run
    return f"{run[:16]}-{sha256(run.encode(errors='replace')).hexdigest()}"


def _escaped(run: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", run)
