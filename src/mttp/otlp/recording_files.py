"""Finds the files of recordings by path, glob or directory, each with its rotated parts in order."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mttp.codec.secrets import USUAL
from mttp.errors import ReadError

__all__ = ["DATASET_MARKER", "File", "files", "is_parquet", "part", "whole"]

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet")
"""Suffixes of recordings in a directory."""
DATASET_MARKER = "_mttp.json"
"""The file that marks a folder as a dataset, whose parts are no recordings; engines skip such names."""
_PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class File:
    """A file to read."""

    path: Path
    named: bool
    """Whether the caller named this file, so that it must be a recording."""


def files(given: str) -> Iterator[File]:
    """
    Yield the files of a path, a glob or a directory.

    Raises ReadError if there are none.
    """
    path = Path(given)
    if os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        yield from _directory(path)
    elif os.path.exists(path):  # noqa: PTH110
        yield from (File(part, named=True) for part in _with_parts(path))
    elif glob.has_magic(given):
        yield from _glob(given)
    else:
        shown = USUAL.text(given)
        raise ReadError(f"{shown} does not exist; give a recording, a glob or a directory of recordings")


def is_parquet(path: Path) -> bool:
    """Whether the file starts with the magic bytes of Parquet."""
    if not path.is_file():  # the first bytes of a pipe can't be read twice
        return False
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _glob(pattern: str) -> Iterator[File]:
    paths = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - takes any pattern
    files = [path for path in paths if path.is_file()]
    for directory in (path for path in paths if path.is_dir()):
        files += _recordings(directory)
    if not files:
        shown = USUAL.text(pattern)
        raise ReadError(f"no file matches {shown}; quote the pattern and check it, or give a directory")
    yield from _in_order(files)


def _directory(path: Path) -> Iterator[File]:
    files = _recordings(path)
    if not files:
        raise ReadError(f"{path} has no recordings: no file in it ends in {', '.join(ENDINGS)}")
    yield from _in_order(files)


def _recordings(directory: Path) -> list[Path]:
    datasets = {marker.parent for marker in directory.rglob(DATASET_MARKER)}
    return sorted(
        path
        for path in directory.rglob("*")
        if path.name.endswith(ENDINGS)
        and not path.name.startswith(".")
        and path.is_file()
        and datasets.isdisjoint(path.parents)
    )


def _in_order(files: Sequence[Path]) -> Iterator[File]:
    """Yield files that were not named by the caller; rotated parts follow their file."""
    known = set(files)
    for path in files:
        if whole(path) not in known:
            yield from (File(part, named=False) for part in _with_parts(path) if part in known)


def part(path: Path, number: int) -> Path:
    """Return the path of the rotated part with that number."""
    stem, suffix = _split(path.name)
    return path.with_name(f"{stem}.{number}{suffix}")


def whole(part: Path) -> Path | None:
    """Return the file of a rotated part: `a.jsonl` for `a.2.jsonl`; None for other names."""
    stem, suffix = _split(part.name)
    base, dot, number = stem.rpartition(".")
    return part.with_name(base + suffix) if dot and number.isdecimal() else None


def _with_parts(path: Path) -> list[Path]:
    """Return the file and its rotated parts in order: `a.jsonl`, `a.1.jsonl`, `a.2.jsonl`."""
    stem, suffix = _split(path.name)
    pattern = re.compile(rf"{re.escape(stem)}\.(\d+){re.escape(suffix)}")
    parts = [
        (int(match[1]), other)
        for other in path.parent.iterdir()
        if (match := pattern.fullmatch(other.name)) is not None and other.is_file()
    ]
    return [path, *(part for _, part in sorted(parts))]


def _split(name: str) -> tuple[str, str]:
    """Split a name into stem and suffixes, with that of the compression: `a` and `.jsonl.gz`."""
    path = Path(name)
    suffix = path.suffix
    if suffix in (".gz", ".zst"):
        suffix = Path(path.stem).suffix + suffix
    return name.removesuffix(suffix), suffix
