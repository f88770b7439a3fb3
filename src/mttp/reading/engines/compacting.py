"""Merges the files of a dataset that were added by several writes, run by run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mttp.reading.engines import layout, open_dataset
from mttp.reading.engines.failures import readable
from mttp.reading.engines.storage import PARTIAL, UNFINISHED, check_dataset, unfinished
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
    Write files of runs again that several writes, a killed one or an older mttp made; then remove the old.

    So are the files of runs whose digests are missing or damaged.

    The spans stay the same. If it is cut off, spans are there twice, and are read once.
    Raises ReadError if there is no dataset, or its files can't be written.
    """
    address, files, root = writable(place)
    with readable(address):
        check_dataset(address, files, root)
        return _compact(place, files, root)


def _compact(place: str, files: Any, root: str) -> Compaction:
    dataset = open_dataset(place)
    killed, before = unfinished(files, root), _files(files, root)
    lacking = layout.lacking_digests([path for paths in before.values() for path in paths], killed)
    spans = merged = 0
    for run, paths in before.items():
        if run not in lacking and _is_compact(paths, killed) and _are_whole(files, paths):
            continue
        writer = DatasetWriter(place, files, root)
        spans += writer.write(dataset.partition(run))
        merged += 1
        for path in sorted(paths):  # digests first: spans without them are found by the next call
            files.rm_file(path)
    for path in [path for path in files.find(root) if killed and path.endswith(PARTIAL)]:
        files.rm_file(path)
    for name in killed:
        files.rm_file(f"{root}/{UNFINISHED}{name}")
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
    for path in files.find(root):
        if path.endswith(".parquet") and not layout.is_empty(path):
            found[layout.partition_at(path).run].append(path)
    return dict(found)


def _is_compact(paths: list[str], killed: list[str]) -> bool:
    names = [path.rpartition("/")[2] for path in paths]
    writes = {name.partition("-")[0] for name in names}
    return len(writes) == 1 and writes.isdisjoint(killed) and all(map(layout.is_current, names))


def _are_whole(files: Any, paths: list[str]) -> bool:
    """Whether the files of digests can be read, and have their checksums."""
    from pyarrow import ArrowException, parquet

    for path in paths:
        if path.split("/")[-4] == layout.SPANS:
            continue
        try:
            with files.open(path, "rb") as file:
                parquet.read_table(file, page_checksum_verification=True)
        except (ArrowException, OSError):
            return False
    return True
