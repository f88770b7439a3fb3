"""Merges the files of a dataset that were added by several writes, run by run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mttp.reading.engines import layout, open_dataset
from mttp.reading.engines.writing import DatasetWriter, writable

__all__ = ["Compaction", "compact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What was merged."""

    runs: int
    """Number of runs whose files were written again."""
    spans: int
    """Number of their spans."""
    files_before: int
    """Number of files of the dataset before."""
    files_after: int
    """Number of files after."""


def compact(place: str) -> Compaction:
    """
    Write the files of each run again that several writes or an older mttp made, then remove the old ones.

    The spans stay the same. If it is cut off, spans are there twice, and are read once.
    Raises ReadError if there is no dataset, or its files can't be written.
    """
    _, files, root = writable(place)
    dataset = open_dataset(place)
    dataset.check()
    before = _files(files, root)
    spans = merged = 0
    for run, paths in before.items():
        if _is_compact(paths):
            continue
        writer = DatasetWriter(files, root)
        spans += writer.write(dataset.partition(run))
        merged += 1
        for path in sorted(paths):  # digests first: spans without them are found by the next call
            files.rm_file(path)
    after = _files(files, root) if merged else before
    return Compaction(
        runs=merged,
        spans=spans,
        files_before=sum(map(len, before.values())),
        files_after=sum(map(len, after.values())),
    )


def _files(files: Any, root: str) -> dict[str, list[str]]:
    """The files of each run, without those that are always empty."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in files.glob(f"{root}/*/run=*/date=*/*.parquet"):
        if not layout.is_empty(path):
            found[layout.partition_at(path).run].append(path)
    return dict(found)


def _is_compact(paths: list[str]) -> bool:
    names = [path.rpartition("/")[2] for path in paths]
    return len({name.partition("-")[0] for name in names}) == 1 and all(map(layout.is_current, names))
