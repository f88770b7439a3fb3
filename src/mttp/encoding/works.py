"""What a helper can be asked for, and how it does it."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from mttp.codec import stretches
from mttp.codec.profiles import Profile, full, packed
from mttp.encoding.play import Plays
from mttp.encoding.stretch import Stretch
from mttp.encoding.unpacking import FORM, unpack
from mttp.spans import SpanRecord
from mttp.wire import otlp_json
from mttp.wire.otlp_json import Part
from mttp.wire.otlp_proto import encode_span

__all__ = ["LINES", "MESSAGES", "WORKS", "lines"]

LINES: Final = 1
"""OTLP JSON lines, arrays packed."""
MESSAGES: Final = 2
"""The OTLP protobuf message of each span."""


def lines(spans: Iterable[Stretch | Plays | SpanRecord]) -> bytes:
    """OTLP JSON lines of spans that are packed already, or are together."""
    return b"".join(otlp_json.lines(_parts(spans)))


def _parts(spans: Iterable[Stretch | Plays | SpanRecord]) -> Iterator[Part]:
    found = list(spans)
    texts = chain.from_iterable(_written([one for one in found if isinstance(one, Stretch)]))
    for one in found:
        if isinstance(one, Stretch):
            yield one.trace, one.scope, list(islice(texts, len(one.rows)))
        elif isinstance(one, Plays):
            yield from one.parts()
        else:
            yield otlp_json.part(one)


def _written(found: Iterable[Stretch]) -> Iterator[list[bytes]]:
    """The texts of all their steps, in order."""
    openings = ((otlp_json.shared(one.of_all()), one.rows) for one in found)
    rows = [opening + row for opening, rows in openings for row in rows]
    for said, columns in stretches.packed(rows):
        yield otlp_json.alike(said, columns)


def _records(spans: Iterable[Stretch | Plays | SpanRecord], profile: Profile) -> Iterator[SpanRecord]:
    for one in spans:
        if isinstance(one, (Stretch, Plays)):
            yield from one.records(profile)
        else:
            yield one


def _lines(data: bytes) -> bytes:
    return lines(unpack(data, packed))


def _messages(data: bytes) -> bytes:
    return marshal.dumps(list(map(encode_span, _records(unpack(data, full), full))), FORM)


WORKS: Mapping[int, Callable[[bytes], bytes]] = {LINES: _lines, MESSAGES: _messages}
"""The function for each: of a parcel the answer."""
