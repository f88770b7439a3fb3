"""
The program of a process that decodes parts of files for another.

It imports only what decoding needs, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import gc
import marshal
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mttp.model.spans import Draft, Link, Scope, SpanEvent, SpanRecord, frozen
from mttp.otlp.processes import serve
from mttp.otlp.streams import FilePart
from mttp.reading.episode_summary import EpisodeSummary, IsOpen
from mttp.reading.lines import Decoded, LineFault, decode

__all__ = ["Wanted", "pack", "unpack"]

Wanted: TypeAlias = Literal["arrays", "scalars", "episodes", "figures"]
"""
Spans with arrays, spans without arrays, or the latter with an `EpisodeSummary` per whole episode.

Only with `figures` the summaries have figures for a study.
"""

_SUMMARY_LENGTH = 2
"""Length of a packed `EpisodeSummary`; a packed span is longer."""
_FIELDS = tuple(item.name for item in fields(SpanRecord) if item.name not in ("events", "links", "scope"))


def _reply(_: int, request: bytes) -> bytes:
    """The packed lines of a part; raises if the file can't be read, and the reader then reports why."""
    path, start, end, wanted = marshal.loads(request)
    decoded = partial(decode, Path(path), part=FilePart(start, end))
    if wanted not in ("episodes", "figures"):
        return marshal.dumps(list(pack(decoded(arrays=wanted == "arrays"))))
    from mttp.reading.digest import digested  # only summaries need it

    figures = wanted == "figures"

    def shortened(is_open: IsOpen) -> Iterator[Decoded]:
        return decoded(arrays=False, is_open=is_open, figures=figures)

    return marshal.dumps(list(pack(digested(shortened, figures=figures))))


def pack(lines: Iterable[Decoded]) -> Iterator[tuple[Any, ...]]:
    """Decoded lines as plain data."""
    for spans, faults in lines:
        scopes = {id(span.scope): span.scope for span in spans or ()}
        places = {found: place for place, found in enumerate(scopes)}
        yield (
            [astuple(scope) for scope in scopes.values()],
            None if spans is None else [_packed(span, places) for span in spans],
            [tuple(fault) for fault in faults],
        )


def unpack(lines: Iterable[tuple[Any, ...]]) -> Iterator[Decoded]:
    """The lines from the result of `pack`."""
    for packed, rows, faults in lines:
        scopes = [Scope(*values) for values in packed]
        spans = None if rows is None else [_unpacked(row, scopes) for row in rows]
        yield Decoded(spans, [LineFault(*fault) for fault in faults])


def _packed(span: SpanRecord | EpisodeSummary, places: dict[int, int]) -> tuple[Any, ...]:
    if isinstance(span, EpisodeSummary):
        return span.plain(), places[id(span.scope)]
    return (
        [getattr(span, name) for name in _FIELDS],
        [(one.name, one.time, one.attributes, one.dropped_attributes) for one in span.events],
        [
            (one.trace_id, one.span_id, one.attributes, one.flags, one.dropped_attributes)
            for one in span.links
        ],
        places[id(span.scope)],
    )


def _unpacked(row: tuple[Any, ...], scopes: list[Scope]) -> SpanRecord | EpisodeSummary:
    if len(row) == _SUMMARY_LENGTH:
        return EpisodeSummary.of_plain(row[0], scopes[row[1]])
    values, events, links, scope = row
    return frozen(
        Draft(
            **dict(zip(_FIELDS, values, strict=True)),
            events=tuple(SpanEvent(*values) for values in events),
            links=tuple(Link(*values) for values in links),
            scope=scopes[scope],
        )
    )


if __name__ == "__main__":
    gc.disable()  # decoded values have no cycles
    serve(_reply)
