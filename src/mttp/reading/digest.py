"""
What a summary needs of a share of a file: an episode that is whole in it as one value, all else span by span.

Whoever counts the shares in their order counts what he would have counted of the spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from mttp.codec import outline, segments
from mttp.reading.aggregate import Counts
from mttp.reading.ended import Ended, IsOpen
from mttp.reading.lines import Decoded
from mttp.reading.ongoing import Ongoing
from mttp.reading.tally import Tally
from mttp.semconv import attributes as a
from mttp.spans import SpanRecord

__all__ = ["digested"]


class _Kept(NamedTuple):
    """A span whose episode may still become whole."""

    line: int
    position: int
    """Among the spans of the share."""
    record: SpanRecord


def digested(decode: Callable[[IsOpen], Iterable[Decoded]]) -> list[Decoded]:
    """The lines with one `Ended` for all spans of an episode that is whole in them."""
    digest, position = _Digest(), 0
    found: list[Decoded] = []
    rows: list[list[tuple[int, Any]]] = []
    for number, line in enumerate(decode(digest.has_open)):
        found.append(line)
        rows.append([])
        scopes: set[int] = set()
        for record in line.spans or ():
            position += 1
            is_new = id(record.scope) not in scopes  # of a scope one span must stay: it may be a newer one
            scopes.add(id(record.scope))
            if isinstance(record, Ended):
                digest.note(record)
                rows[number].append((position, record))
            elif digest.is_whole_soon(record):
                ended = digest.take(_Kept(number, position, record))
                rows[number] += [] if ended is None else [(position, ended)]
            elif is_new or a.RUN_ID in record.attributes:
                rows[number].append((position, record))
    for kept in digest.kept.values():
        for one in kept:
            rows[one.line].append((one.position, one.record))
    items = ([item for _, item in sorted(row, key=itemgetter(0))] for row in rows)
    return [
        line if line.spans is None else line._replace(spans=left)
        for line, left in zip(found, items, strict=True)
    ]


class _Digest(Tally):
    """Counts each episode on its own, and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[_Kept]] = {}
        self._closed: Any = None

    def is_whole_soon(self, record: SpanRecord) -> bool:
        """Whether it is a span of an episode's own process, and the episode was not whole before."""
        found = record.attributes
        return (
            a.RUN_ID in found
            and a.EPISODE_ID in found
            and segments.segment(record) == segments.OWNER
            and not self.has_ended(record.trace_id)
        )

    def take(self, one: _Kept) -> Ended | None:
        """Take a span; the episode, where it is whole by it."""
        record = one.record
        self._closed = None
        self.kept.setdefault(record.trace_id, []).append(one)
        self._add(outline.kind(record), record)
        if self._closed is None:
            return None
        return self._ended(self._closed, [kept.record for kept in self.kept.pop(record.trace_id)])

    def _close(self, trace_id: str, episode: Any) -> None:  # noqa: ARG002 - the tally's own
        self._closed = episode

    def note(self, ended: Ended) -> None:
        """An episode was whole in a line."""
        self._finished.add(int(ended.trace_id, 16))

    def _ended(self, episode: Ongoing, records: Sequence[SpanRecord]) -> Ended:
        different = {record.span_id: record for record in reversed(records)}
        counts = Counts()
        for record in different.values():
            counts.add(outline.kind(record), record.attributes)
        left_out = len(records) - len(different)
        return episode.ended(records[0].trace_id, records[-1].scope, counts, duplicates=left_out)
