"""What a source names: a file with its rotated parts, a glob, a directory, or a trace store."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading import stores

__all__ = ["File", "RecordedSpans", "Source", "copy_of", "find", "is_parquet", "part", "size", "whole"]

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet")
"""What a recording's name ends in, where a directory is searched."""
_PARQUET = b"PAR1"


@runtime_checkable
class RecordedSpans(Protocol):
    """Something that holds spans in memory, such as a session."""

    def records(self) -> Iterable[SpanRecord]:
        """The spans recorded so far."""


Source: TypeAlias = (
    "str | os.PathLike[str] | RecordedSpans | Sequence[str | os.PathLike[str] | RecordedSpans]"
)
"""A file, a glob, a directory, a trace store's address, something with `records()`, or a list of these."""


@dataclass(frozen=True, slots=True)
class File:
    """One file to read."""

    path: Path
    named: bool
    """Whether the caller named this very file: then it must be a recording."""


def find(source: Source) -> list[File | RecordedSpans]:
    """What to read, each file once; raises ReadError where there is nothing."""
    found: dict[object, File | RecordedSpans] = {}
    for item in _items(source):
        for part in [item] if isinstance(item, RecordedSpans) else _files(os.fspath(item)):
            found.setdefault(part.path.resolve() if isinstance(part, File) else id(part), part)
    return list(found.values())


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do."""
    if not path.is_file():  # of a pipe, what was looked at would be gone
        return False
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def size(source: Source) -> int:
    """How many bytes on disk there are to read."""
    return sum(item.path.stat().st_size for item in find(source) if isinstance(item, File))


def _items(source: Source) -> Sequence[str | os.PathLike[str] | RecordedSpans]:
    if isinstance(source, str):
        return [stores.open(source) if stores.is_address(source) else _path_of(source)]
    if isinstance(source, RecordedSpans):
        return [_written(source) or source]
    if isinstance(source, os.PathLike):
        return [source]
    if isinstance(source, (bytes, bytearray)):
        raise ReadError(f"{source[:20]!r} is bytes; give a path as text")
    if not isinstance(source, Sequence):
        raise ReadError(
            f"{type(source).__name__} can't be read; give a path, a glob, a directory or a session"
        )
    if not source:
        raise ReadError("there is nothing to read: the list of sources is empty")
    return [item for member in source for item in _items(member)]


def _path_of(given: str) -> str:
    """A path, also where it is written as the address of a file transport."""
    if not given:
        raise ReadError("the path is empty; give a recording, a glob or a directory of recordings")
    if given.startswith("file://"):
        return unquote(given.removeprefix("file://").partition("?")[0])
    return given


def _written(session: RecordedSpans) -> Path | None:
    """The files of a session that writes files, all that has ended in them."""
    written = getattr(session, "written", None)
    location = written() if callable(written) else None
    return location if isinstance(location, Path) else None


def _files(given: str) -> Iterator[File]:
    path = Path(given)
    if path.is_dir():
        yield from _directory(path)
    elif path.exists():
        yield from (File(part, named=True) for part in _with_parts(path))
    elif glob.has_magic(given):
        yield from _glob(given)
    else:
        raise ReadError(f"{given} does not exist; give a recording, a glob or a directory of recordings")


def _glob(pattern: str) -> Iterator[File]:
    paths = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - takes any pattern
    files = [path for path in paths if path.is_file()]
    for directory in (path for path in paths if path.is_dir()):
        files += _recordings(directory)
    if not files:
        raise ReadError(f"no file matches {pattern}; quote the pattern and check it, or give a directory")
    yield from _in_order(files)


def _directory(path: Path) -> Iterator[File]:
    files = _recordings(path)
    if not files:
        raise ReadError(f"{path} holds no recordings: no file in it ends in {', '.join(ENDINGS)}")
    yield from _in_order(files)


def _recordings(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in directory.rglob("*")
        if path.name.endswith(ENDINGS) and not path.name.startswith(".") and path.is_file()
    )


def _in_order(files: Sequence[Path]) -> Iterator[File]:
    """The files as found rather than named; a rotated part follows the file that it is a part of."""
    known = set(files)
    copies = {copy_of(path) for path in files}
    for path in files:
        if path not in copies and whole(path) not in known:
            yield from (File(part, named=False) for part in _with_parts(path) if part in known)


def copy_of(path: Path) -> Path:
    """Where a Parquet copy of a file is: `a.jsonl.parquet` beside `a.jsonl`."""
    return path.with_name(f"{path.name}.parquet")


def part(path: Path, number: int) -> Path:
    """The file's `number`th part."""
    stem, suffix = _split(path.name)
    return path.with_name(f"{stem}.{number}{suffix}")


def whole(part: Path) -> Path | None:
    """The file that this one would be a part of: `a.jsonl` for `a.2.jsonl`."""
    stem, suffix = _split(part.name)
    base, dot, number = stem.rpartition(".")
    return part.with_name(base + suffix) if dot and number.isdecimal() else None


def _with_parts(path: Path) -> list[Path]:
    """The file, then what was written after it had reached its size: `a.jsonl`, `a.1.jsonl`, `a.2.jsonl`."""
    stem, suffix = _split(path.name)
    pattern = re.compile(rf"{re.escape(stem)}\.(\d+){re.escape(suffix)}")
    parts = [
        (int(match[1]), other)
        for other in path.parent.iterdir()
        if (match := pattern.fullmatch(other.name)) is not None and other.is_file()
    ]
    return [path, *(part for _, part in sorted(parts))]


def _split(name: str) -> tuple[str, str]:
    """Stem and suffix, a compression's suffix included: `a` and `.jsonl.gz`."""
    path = Path(name)
    suffix = path.suffix
    if suffix in (".gz", ".zst"):
        suffix = Path(path.stem).suffix + suffix
    return name.removesuffix(suffix), suffix
