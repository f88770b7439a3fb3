"""Resolves sources: files with their rotated parts, globs, directories, datasets, sessions and stores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote

from mttp.errors import ReadError
from mttp.model.interrupts import raise_interrupt
from mttp.model.reprs import bounded_repr
from mttp.model.spans import SpanRecord
from mttp.otlp.recording_files import File, files
from mttp.reading import engines, stores

__all__ = ["RecordedSpans", "Source", "find", "size"]


@runtime_checkable
class RecordedSpans(Protocol):
    """An object that holds spans in memory, such as a session."""

    def records(self) -> Iterable[SpanRecord]:
        """The spans recorded so far."""


Source: TypeAlias = (
    "str | os.PathLike[str] | RecordedSpans | Sequence[str | os.PathLike[str] | RecordedSpans]"
)
"""A file, a glob, a directory, the address of a trace store or dataset, a session, or a list of these."""


def find(source: Source) -> list[File | RecordedSpans]:
    """The files, sessions and stores of a source, each once; raises ReadError if there are none."""
    items: dict[object, File | RecordedSpans] = {}
    for item in _items(source):
        for part in [item] if isinstance(item, RecordedSpans) else files(_text_of(item)):
            items.setdefault(part.path.resolve() if isinstance(part, File) else id(part), part)
    return list(items.values())


def _text_of(path: str | os.PathLike[str]) -> str:
    """Return a path as text; raises ReadError if the object can't give it."""
    try:
        return os.fspath(path)
    except Exception as error:
        raise_interrupt(error)
        raise ReadError(f"can't read {type(path).__name__}, which gives no path: {error!r}") from error


def size(source: Source) -> int:
    """Total size of a source's files in bytes."""
    return sum(item.path.stat().st_size for item in find(source) if isinstance(item, File))


def _items(source: Source) -> Sequence[str | os.PathLike[str] | RecordedSpans]:
    if isinstance(source, (str, Path)) and engines.is_address(str(source)):
        return [engines.open(str(source))]
    if isinstance(source, str):
        return [stores.open(source) if stores.is_address(source) else _path_of(source)]
    if isinstance(source, RecordedSpans):
        return [_written(source) or source]
    if isinstance(source, os.PathLike):
        return [source]
    if isinstance(source, (bytes, bytearray)):
        raise ReadError(f"{source[:20]!r} is bytes; give a path as a string")
    if not isinstance(source, Sequence):
        shown = f"{bounded_repr(source):.80} ({type(source).__name__})"
        raise ReadError(f"can't read {shown}; give a path, a glob, a directory or a session")
    if not source:
        raise ReadError("there is nothing to read: the list of sources is empty")
    return [item for member in source for item in _items(member)]


def _path_of(address: str) -> str:
    """The path, also of the address of a file transport (`file://...`)."""
    if not address:
        raise ReadError("the path is empty; give a recording, a glob or a directory of recordings")
    if address.startswith("file://"):
        return unquote(address.removeprefix("file://").partition("?")[0])
    return address


def _written(session: RecordedSpans) -> Path | None:
    """The path of a session that writes files, after it has written all ended spans; else None."""
    written = getattr(session, "_written", None)
    location = written() if callable(written) else None
    return location if isinstance(location, Path) else None
