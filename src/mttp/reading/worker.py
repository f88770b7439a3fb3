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
from typing import Any

from mttp.codec import kinds
from mttp.model.spans import Draft, Link, Scope, SpanEvent, SpanRecord, frozen
from mttp.otlp.processes import serve
from mttp.otlp.streams import FilePart
from mttp.reading.lines import Columns, Decoded, LineFault, Rows, decode
from mttp.semconv import attributes as a
from mttp.semconv import translation

__all__ = ["is_apart", "pack", "unpack"]


_FIELDS = tuple(item.name for item in fields(SpanRecord) if item.name not in ("events", "links", "scope"))


def _reply(_: int, request: bytes) -> bytes:
    """The packed lines of a part; raises if the file can't be read, and the reader then reports why."""
    path, start, end, arrays, selection = marshal.loads(request)
    columns = selection and Columns(*selection)
    lines: Iterable[Decoded] = decode(Path(path), arrays=arrays, part=FilePart(start, end), columns=columns)
    return marshal.dumps(list(pack(lines if columns is None else _with_rows(lines, columns))))


def _with_rows(lines: Iterable[Decoded], columns: Columns) -> list[Decoded]:
    """
    Return the lines with rows instead of spans; lines with spans in a row are joined.

    Spans that the reader has to see remain: of runs, of losses, and the first of an unknown version.
    """
    joined: list[Decoded] = []
    items: list[Any] = []
    rows = import_module(columns.module).SpanRows(*columns.arguments)
    scope: Scope | None = None
    for spans, faults in lines:
        if spans and (items or len(rows)):
            joined[-1].faults.extend(faults)
        else:
            items += rows.rows()
            items = []
            joined.append(Decoded(None if spans is None else items, faults))
        for span in spans or ():
            if isinstance(span, Rows) or is_apart(span, is_first=span.scope is not scope):
                items += rows.rows()
                items.append(span)
            else:
                rows.add(span)
            scope = scope if isinstance(span, Rows) else span.scope
    items += rows.rows()
    return joined


def is_apart(span: SpanRecord, *, is_first: bool) -> bool:
    """Return whether the reader has to see a span, which may be the first of its scope."""
    is_of_unknown = is_first and translation.age(span.scope.schema_url) in ("newer", "unknown")
    return is_of_unknown or a.GAP_SPANS in span.attributes or kinds.is_run(span)


def pack(lines: Iterable[Decoded]) -> Iterator[tuple[Any, ...]]:
    """Decoded lines as plain data."""
    for spans, faults in lines:
        scopes = {id(span.scope): span.scope for span in spans or () if not isinstance(span, Rows)}
        places = {scope_id: place for place, scope_id in enumerate(scopes)}
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
        return (_stream(span.batch),)
    return (
        [getattr(span, name) for name in _FIELDS],
        [(event.name, event.time, event.attributes, event.dropped_attributes) for event in span.events],
        [
            (link.trace_id, link.span_id, link.attributes, link.flags, link.dropped_attributes)
            for link in span.links
        ],
        places[id(span.scope)],
    )


def _unpacked(row: tuple[Any, ...], scopes: list[Scope]) -> SpanRecord | Rows:
    if len(row) == 1:
        return Rows(_batch(*row))
    values, events, links, scope = row
    return frozen(
        Draft(
            **dict(zip(_FIELDS, values, strict=True)),
            events=tuple(SpanEvent(*values) for values in events),
            links=tuple(Link(*values) for values in links),
            scope=scopes[scope],
        )
    )


def _stream(batch: Any) -> bytes:
    """Return an Arrow batch as bytes."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _batch(stream: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(stream).read_next_batch()


if __name__ == "__main__":
    gc.disable()  # decoded values have no cycles
    serve(_reply)
