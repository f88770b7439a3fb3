"""
The program of a process that decodes parts of files for another.

It imports only what decoding needs, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import gc
import marshal
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mttp.codec import kinds
from mttp.model.spans import Draft, Link, Scope, SpanEvent, SpanRecord, frozen
from mttp.otlp.processes import serve
from mttp.otlp.streams import FilePart
from mttp.reading.lines import Decoded, LineFault, decode
from mttp.semconv import attributes as a
from mttp.semconv import translation

__all__ = ["Columns", "Rows", "is_apart", "pack", "unpack"]


class Columns(NamedTuple):
    """What spans become in a process that decodes them: columns."""

    module: str
    """The module whose `SpanRows` makes them."""
    of_batches: str
    """The module whose `BatchRows` makes them of spans that are in columns already."""
    arguments: tuple[Any, ...]
    """Plain arguments of both."""


class Rows(NamedTuple):
    """Spans as some rows of columns."""

    columns: Any
    """What `SpanRows` or `BatchRows` made of a part of the file, by name."""
    start: int
    stop: int


_ROWS_LENGTH = 3
"""Length of packed `Rows`; a packed span is longer."""
_FIELDS = tuple(item.name for item in fields(SpanRecord) if item.name not in ("events", "links", "scope"))


def _reply(_: int, request: bytes) -> bytes:
    """The packed lines of a part; raises if the file can't be read, and the reader then reports why."""
    path, start, end, arrays, columns = marshal.loads(request)
    lines: Iterable[Decoded] = decode(Path(path), arrays=arrays, part=FilePart(start, end))
    if columns is not None:
        lines = _with_rows(lines, Columns(*columns))
    return marshal.dumps(list(pack(lines)))


def _with_rows(lines: Iterable[Decoded], columns: Columns) -> list[Decoded]:
    """
    Return the lines with rows instead of spans; good lines in a row are joined.

    Spans that the reader has to see remain: of runs, of losses, and the first of an unknown version.
    """
    joined: list[Decoded] = []
    items: list[Any] = []
    rows = import_module(columns.module).SpanRows(*columns.arguments)
    scope: Scope | None = None
    for spans, faults in lines:
        if faults or not spans or not items:
            items = []
            joined.append(Decoded(None if spans is None else items, faults))
        for span in spans or ():
            is_first = span.scope is not scope
            scope = span.scope
            if is_apart(span, is_first=is_first):
                items.append(span)
                continue
            start = len(rows)
            rows.add(span)
            if items and isinstance(items[-1], Rows):
                start = items.pop().start
            items.append(Rows(None, start, len(rows)))
    encoded = rows.columns() if len(rows) else None
    return [Decoded(spans and [_in(encoded, span) for span in spans], faults) for spans, faults in joined]


def _in(columns: Any, span: SpanRecord | Rows) -> SpanRecord | Rows:
    return span._replace(columns=columns) if isinstance(span, Rows) else span


def is_apart(span: SpanRecord, *, is_first: bool) -> bool:
    """Return whether the reader has to see a span, which may be the first of its scope."""
    is_of_unknown = is_first and translation.age(span.scope.schema_url) in ("newer", "unknown")
    return is_of_unknown or a.GAP_SPANS in span.attributes or kinds.is_run(span)


def pack(lines: Iterable[Decoded]) -> Iterator[tuple[Any, ...]]:
    """Decoded lines as plain data."""
    for spans, faults in lines:
        scopes = {id(span.scope): span.scope for span in spans or () if not isinstance(span, Rows)}
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


def _packed(span: SpanRecord | Rows, places: dict[int, int]) -> tuple[Any, ...]:
    if isinstance(span, Rows):
        return tuple(span)
    return (
        [getattr(span, name) for name in _FIELDS],
        [(one.name, one.time, one.attributes, one.dropped_attributes) for one in span.events],
        [
            (one.trace_id, one.span_id, one.attributes, one.flags, one.dropped_attributes)
            for one in span.links
        ],
        places[id(span.scope)],
    )


def _unpacked(row: tuple[Any, ...], scopes: list[Scope]) -> SpanRecord | Rows:
    if len(row) == _ROWS_LENGTH:
        return Rows(*row)
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
