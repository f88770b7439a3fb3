"""
Parquet copies beside recordings, which are read in their place.

A copy stores the size and modification time of its source; if the source changes, the copy is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.recording_files import File, copy_of
from mttp.otlp.whole_files import replacing
from mttp.reading import lines
from mttp.reading.problems import Problem, Problems

__all__ = ["Copy", "copy_of", "find", "make"]

_NOTE = "mttp.copy"


class Copy(NamedTuple):
    """A valid copy."""

    path: Path
    faults: list[lines.LineFault]
    """Faults of the source's lines."""


def find(source: Path) -> Copy | None:
    """The valid copy of a source, if there is one."""
    path = copy_of(source)
    try:
        if not path.is_file() or path.stat().st_mtime_ns < source.stat().st_mtime_ns:
            return None
        from mttp.reading import parquet

        note = json.loads(parquet.notes(path)[_NOTE])
        if note["source"] != _state(source) or not parquet.has_checksum(path):
            return None
        return Copy(path, [lines.LineFault(*fault) for fault in note["faults"]])
    except (OSError, MissingExtra, ReadError, LookupError, TypeError, ValueError):
        return None  # an invalid copy is ignored: the source is read


def make(source: Path) -> Path:
    """Write a copy beside a file of lines; raises ReadError if the file is not a recording."""
    from mttp.reading import parquet

    path = copy_of(source)
    state, problems = _state(source), Problems()
    blocks = lines.read_blocks(File(source, named=True), _as_written(source), problems)
    with replacing(path) as partial:
        parquet.write(partial, _spans(blocks), notes=lambda: {_NOTE: _note(state, problems.all())})
    return path


def _as_written(source: Path) -> Iterator[lines.Decoded]:
    """The source's lines; types are checked when the copy is read."""
    for spans, faults in lines.decode(source, arrays=True, as_written=True):
        yield lines.Decoded(spans, [fault for fault in faults if fault.kind != "wrong_type"])


def _spans(blocks: Iterable[list[SpanRecord]]) -> Iterator[SpanRecord]:
    return chain.from_iterable(blocks)


def _state(source: Path) -> list[int]:
    """Size and modification time of a file."""
    found = source.stat()
    return [found.st_size, found.st_mtime_ns]


def _note(state: list[int], problems: list[Problem]) -> str:
    if len(problems) > Problems.LIMIT:
        raise ReadError(
            f"{problems[0].file} has more than {Problems.LIMIT:,} problems; read it without a copy"
        )
    return json.dumps(
        {"source": state, "faults": [(one.kind, one.message, one.line, one.trace_id) for one in problems]}
    )
