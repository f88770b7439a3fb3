"""
Parquet copies beside the files that they were made of, read in their place while these stay as they were.

A copy says of what size and age its source was; of another it is no copy, and it is left alone.
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
from mttp.reading import lines
from mttp.reading.problems import Problem, Problems

__all__ = ["Copy", "copy_of", "find", "make"]

_NOTE = "mttp.copy"


class Copy(NamedTuple):
    """A copy that is as good as its source."""

    path: Path
    faults: list[lines.LineFault]
    """What is wrong with the source's lines."""


def find(source: Path) -> Copy | None:
    """The source's copy, if there is one that says the same."""
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
        return None  # whatever is wrong with it, there is the source


def make(source: Path) -> Path:
    """Make a copy beside a file of lines; raises ReadError where that is no recording."""
    from mttp.reading import parquet

    path = copy_of(source)
    partial = path.with_name(f".{path.name}.partial")
    state, problems = _state(source), Problems()
    blocks = lines.read_blocks(File(source, named=True), _as_written(source), problems)
    try:
        parquet.write(partial, _spans(blocks), notes=lambda: {_NOTE: _note(state, problems.all())})
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _as_written(source: Path) -> Iterator[lines.Decoded]:
    """The source's lines; types are looked at when the copy is read."""
    for spans, faults in lines.decode(source, arrays=True, as_written=True):
        yield lines.Decoded(spans, [fault for fault in faults if fault.kind != "wrong_type"])


def _spans(blocks: Iterable[list[SpanRecord]]) -> Iterator[SpanRecord]:
    return chain.from_iterable(blocks)


def _state(source: Path) -> list[int]:
    """What changes when a file does: its size, and when it was written."""
    found = source.stat()
    return [found.st_size, found.st_mtime_ns]


def _note(state: list[int], problems: list[Problem]) -> str:
    if len(problems) > Problems.LIMIT:
        raise ReadError(f"{problems[0].file} has more than {Problems.LIMIT:,} problems; read it as it is")
    return json.dumps(
        {"source": state, "faults": [(one.kind, one.message, one.line, one.trace_id) for one in problems]}
    )
