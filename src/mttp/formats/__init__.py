"""
Files of other libraries, read as episodes.

Each module reads one format: it maps the records that a library saves itself to values of `mttp.model`.
Integrations that record a library live use the same mapping.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from mttp.errors import MttpError, ReadError
from mttp.formats.records import ImportedRecord, UnreadableRecord
from mttp.formats.sample import FileSample, sample
from mttp.formats.writing import WritableFormat, WrittenFile, write_records
from mttp.model.episodes import Episode

__all__ = [
    "FORMATS",
    "FileFormat",
    "ImportedRecord",
    "UnreadableRecord",
    "WRITABLE",
    "WrittenFile",
    "format_named",
    "hint",
    "read",
    "recognize",
    "recognized",
    "write",
]


class FileFormat(Protocol):
    """A module that reads the files of one format."""

    TITLE: str
    """The name for people: `verifiers traces`."""
    LACKS: tuple[str, ...]
    """What files of the format do not hold: `log probabilities`."""

    def recognizes(self, sample: FileSample, /) -> bool:
        """Return whether a file that begins with this sample has the format."""

    def read(self, path: Path, /) -> Iterator[ImportedRecord]:
        """Yield the episodes of a file; raises ReadError if it can't be read at all."""


FORMATS: Mapping[str, str] = {
    "verifiers": "mttp.formats.verifiers",
    "inspect": "mttp.formats.inspect_ai",
    "hud": "mttp.formats.hud",
    "art": "mttp.formats.art",
    "trl": "mttp.formats.trl",
    "verl": "mttp.formats.verl",
    "skyrl": "mttp.formats.skyrl",
    "openrlhf": "mttp.formats.openrlhf",
    "nemo_rl": "mttp.formats.nemo_rl",
    "wandb": "mttp.formats.wandb",
    "agent_traces": "mttp.formats.agent_traces",
}
"""The modules by the name of their format, in the order in which they are asked whether a file is theirs."""


WRITABLE = ("verifiers", "trl", "verl")
"""The formats that can be written, too."""


def format_named(name: str) -> FileFormat:
    """Return the format with this name; raises ReadError for an unknown one."""
    if name not in FORMATS:
        raise ReadError(f"there is no format {name!r}; the formats are {', '.join(FORMATS)}")
    return cast("FileFormat", import_module(FORMATS[name]))


def recognize(path: str | os.PathLike[str]) -> str | None:
    """
    Return the name of the format of a file, by its content; None if it has none of the formats.

    Raises ReadError if the file can't be opened.
    """
    file_sample = sample(Path(path))
    return next((name for name in FORMATS if format_named(name).recognizes(file_sample)), None)


def recognized(path: str | os.PathLike[str]) -> str:
    """Return the name of the format of a file; raises ReadError if it has none of the formats."""
    name = recognize(path)
    if name is not None:
        return name
    from mttp.formats import agent_traces

    signals = agent_traces.other_signals(Path(path))
    if signals:
        raise ReadError(f"{os.fspath(path)} holds {signals} of OpenTelemetry, and no traces; give its traces")
    raise ReadError(f"{os.fspath(path)}: the format is not known; the formats are {', '.join(FORMATS)}")


def hint(path: Path) -> str:
    """Return what to do with a file that is not a recording; empty if it has none of the formats either."""
    with contextlib.suppress(MttpError):
        name = recognize(path) if path.is_file() else None
        if name is not None:
            return f"it holds {format_named(name).TITLE}; `mttp import` records their episodes"
    return ""


def read(path: str | os.PathLike[str], *, format: str | None = None) -> Iterator[ImportedRecord]:
    """
    Yield the episodes and evaluations of a file of another library, and the records that can't be read.

    `format` is a name of `FORMATS`; by default the content of the file decides.
    Raises ReadError if the file can't be read or its format is not known.
    """
    return format_named(format or recognized(path)).read(Path(path))


def write(path: str | os.PathLike[str], episodes: Iterable[Episode], *, format: str) -> WrittenFile:
    """
    Write episodes that were imported from a format as its library saves them, replacing a file that exists.

    Episodes of verifiers that were recorded live are written, too.
    Raises ReadError for a format that can't be written, and ConfigureError for a wrong name of the file.
    """
    if format not in WRITABLE:
        raise ReadError(f"{format!r} can't be written; the formats that can are {', '.join(WRITABLE)}")
    return write_records(path, episodes, cast("WritableFormat", import_module(FORMATS[format])))
