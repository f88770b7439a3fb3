"""Records the episodes of other libraries' files in the open session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mttp import formats
from mttp.errors import ReadError
from mttp.formats.records import UnreadableRecord
from mttp.model.episodes import Episode
from mttp.recording import configuration
from mttp.recording.session import Session
from mttp.recording.training import group

__all__ = ["ImportedFile", "find_files", "import_files"]

_ENDINGS = (".jsonl", ".json", ".parquet", ".eval", ".gz", ".zst")
"""Suffixes of the files that are looked at in a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of another library whose episodes were recorded."""

    path: Path
    """The file."""
    format: str
    """The name of its format, as in `mttp.formats.FORMATS`."""
    title: str
    """The format's name for people."""
    lacks: tuple[str, ...]
    """What files of the format do not hold."""
    episodes: int = 0
    """The number of recorded episodes."""
    evaluations: int = 0
    """The number of recorded evaluations."""
    unreadable: tuple[UnreadableRecord, ...] = ()
    """The records that could not be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "path": str(self.path),
            "format": self.format,
            "title": self.title,
            "lacks": list(self.lacks),
            "episodes": self.episodes,
            "evaluations": self.evaluations,
            "unreadable": [{"place": record.place, "reason": record.reason} for record in self.unreadable],
        }


def find_files(given: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[Path, str | None]]:
    """
    Yield each file and the name of its format; None for a file of a directory that has no known format.

    Raises ReadError for a path that does not exist, and for a named file without a known format.
    """
    for path in map(Path, given):
        if path.is_dir():
            yield from ((file, formats.recognize(file)) for file in _files_of(path))
        elif not path.exists():
            raise ReadError(f"{path} does not exist; give a file or a directory of files")
        else:
            yield path, formats.recognized(path)


def import_files(
    files: Sequence[tuple[Path, str]], *, advance: Callable[[int], object] | None = None
) -> list[ImportedFile]:
    """
    Record the episodes of files in the open session, and return what was recorded of each.

    `files` are paths with the names of their formats, as `find_files` finds them.
    Episodes with the same group id become a group. `advance` is called with 1 for each episode.
    Raises ReadError if a file can't be read at all, or if no session is open.
    """
    session = configuration.recording_session()
    if session is None:
        raise ReadError("no session is open to record the episodes; call mttp.configure first")
    groups: dict[str, list[Episode]] = {}
    imported = [_import(session, path, name, groups, advance) for path, name in files]
    for name, members in groups.items():
        advantages = [member.advantage for member in members]
        group(name, members, advantages=advantages if None not in advantages else None)
    return imported


def _import(
    session: Session,
    path: Path,
    name: str,
    groups: dict[str, list[Episode]],
    advance: Callable[[int], object] | None,
) -> ImportedFile:
    described = formats.format_named(name)
    episodes, evaluations = 0, 0
    unreadable: list[UnreadableRecord] = []
    for item in described.read(path):
        if isinstance(item, UnreadableRecord):
            unreadable.append(item)
        elif isinstance(item, Episode):
            session.record(item)
            episodes += 1
            if item.group is not None:
                groups.setdefault(item.group, []).append(_member(item))
            if advance is not None:
                advance(1)
        else:
            from mttp.workflows.evaluations import record_evaluation

            record_evaluation(item)
            evaluations += 1
    return ImportedFile(
        path=path,
        format=name,
        title=described.TITLE,
        lacks=described.LACKS,
        episodes=episodes,
        evaluations=evaluations,
        unreadable=tuple(unreadable),
    )


def _member(episode: Episode) -> Episode:
    """Return the episode without what a group does not need, because all are held until the end."""
    return replace(episode, steps=(), agents=(), inputs=None, metadata={}, final_observation=None, extra={})


def _files_of(directory: Path) -> list[Path]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name.endswith(_ENDINGS)]
    return sorted(path for path in files if not path.name.startswith("."))
