"""Reduces the decoded lines of a part of a file to what a summary needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from mttp.codec import summary_fields
from mttp.reading.assembly import Assembler
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.reading.lines import Decoded
from mttp.semconv import attributes as a

__all__ = ["digested"]

_NEEDED = frozenset({a.RUN_ID, a.GEN_AI_OPERATION_NAME})
"""A span of another library is kept if it is a model call: its duration is part of the figures."""


def digested(decode: Callable[[IsOpen], Iterable[Decoded]], *, figures: bool) -> list[Decoded]:
    """
    The lines with one `EpisodeSummary` in place of all spans of each episode that is whole in them.

    Aggregating the results of all parts in order gives the same figures as aggregating all spans.
    """
    assembler, position = Assembler(figures=figures), 0
    whole: set[str] = set()
    lines: list[Decoded] = []
    rows: list[list[tuple[int, Any]]] = []
    kept: defaultdict[str, list[tuple[int, tuple[int, Any]]]] = defaultdict(list)
    """Spans of incomplete episodes, with their line and their position among all spans."""
    for number, line in enumerate(decode(assembler.has_open)):
        lines.append(line)
        rows.append([])
        scopes: set[int] = set()
        for record in line.spans or ():
            position += 1
            is_new = id(record.scope) not in scopes  # one span per scope is kept, for its version
            scopes.add(id(record.scope))
            if isinstance(record, EpisodeSummary):
                whole.add(record.row.trace_id)
                rows[number].append((position, record))
            elif summary_fields.is_own(record.attributes) and record.trace_id not in whole:
                kept[record.trace_id].append((number, (position, record)))
                ended = assembler.add(summary_fields.kind(record), record)
                if ended is not None:
                    whole.add(record.trace_id)
                    rows[number].append((position, ended))
                    del kept[record.trace_id]
            elif is_new or not _NEEDED.isdisjoint(record.attributes) or summary_fields.kind(record):
                rows[number].append((position, record))
    for number, item in (one for spans in kept.values() for one in spans):
        rows[number].append(item)
    return [
        line._replace(spans=[item for _, item in sorted(row, key=itemgetter(0))]) if line.spans else line
        for line, row in zip(lines, rows, strict=True)
    ]
