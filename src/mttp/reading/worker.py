"""
A process that decodes shares of files for another: `main` is all that it runs.

It imports no more than decoding needs, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import gc
import marshal
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from mttp.reading.ended import Ended
from mttp.reading.lines import Decoded, Fault, decode
from mttp.spans import Draft, Link, Scope, SpanEvent, SpanRecord, frozen
from mttp.wire.streams import Share

__all__ = ["Wanted", "main", "pack", "receive", "send", "unpack"]

Wanted: TypeAlias = Literal["arrays", "scalars", "episodes"]
"""Whole spans, such without arrays, or the latter with one `Ended` for an episode where that will do."""

_ENDED = 2
"""So long is what an `Ended` becomes, other than a span."""
_FIELDS = tuple(item.name for item in fields(SpanRecord) if item.name not in ("events", "links", "scope"))


def main() -> None:
    """Answer what is asked on standard input until its end, which is also the other process's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the other process's to handle
    gc.disable()  # what decoding makes has no cycles
    with suppress(BrokenPipeError):
        while asked := receive(sys.stdin.buffer):
            send(sys.stdout.buffer, _answer(*marshal.loads(asked)))


def _answer(path: str, start: int, end: int, wanted: Wanted) -> list[Any] | None:
    """The lines of that share; None where it can't be read, which the other process will see for itself."""
    decoded = partial(decode, Path(path), share=Share(start, end))
    try:
        if wanted != "episodes":
            return list(pack(decoded(arrays=wanted == "arrays")))
        from mttp.reading.digest import digested  # which other readers do without

        return list(pack(digested(lambda is_open: decoded(arrays=False, is_open=is_open))))
    except Exception:
        return None


def send(file: IO[bytes], value: Any) -> None:
    """Write one value of plain data, for a process of the same Python."""
    content = marshal.dumps(value)
    file.write(len(content).to_bytes(8, "little"))
    file.write(content)
    file.flush()


def receive(file: IO[bytes]) -> bytes:
    """The next value that `send` wrote, as marshal keeps it; empty at the end."""
    size = int.from_bytes(file.read(8), "little")
    content = file.read(size)
    return content if len(content) == size else b""


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
    """What `pack` was given."""
    for packed, rows, faults in lines:
        scopes = [Scope(*values) for values in packed]
        spans = None if rows is None else [_unpacked(row, scopes) for row in rows]
        yield Decoded(spans, [Fault(*fault) for fault in faults])


def _packed(span: SpanRecord | Ended, places: dict[int, int]) -> tuple[Any, ...]:
    if isinstance(span, Ended):
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


def _unpacked(row: tuple[Any, ...], scopes: list[Scope]) -> SpanRecord | Ended:
    if len(row) == _ENDED:
        return Ended.of_plain(row[0], scopes[row[1]])
    values, events, links, scope = row
    return frozen(
        Draft(
            **dict(zip(_FIELDS, values, strict=True)),
            events=tuple(SpanEvent(*values) for values in events),
            links=tuple(Link(*values) for values in links),
            scope=scopes[scope],
        )
    )
