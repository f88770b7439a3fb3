"""Steps of one owner that are written together: what they share is told, and written, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mttp.codec import stretches
from mttp.codec.profiles import Profile
from mttp.codec.stretches import Row
from mttp.semconv import spans as names
from mttp.spans import Scope, SpanRecord

__all__ = ["Stretch"]


class Stretch(NamedTuple):
    """Steps that follow each other, and of which nothing unusual was said."""

    scope: Scope
    trace_id: int
    parent_id: int
    flags: int
    base: Mapping[str, Any]
    """What all of them say of where they belong."""
    rows: list[Row]

    def records(self, profile: Profile) -> Iterator[SpanRecord]:
        """Each as a record, its attributes as `profile` delivers them."""
        for row in self.rows:
            yield self._record(
                span_id=f"{row[0]:016x}",
                start_time=row[1],
                end_time=row[2],
                attributes=stretches.attributes(self.base, row, profile),
            )

    @property
    def trace(self) -> str:
        """Their trace, 32 hex digits."""
        return f"{self.trace_id:032x}"

    def of_all(self) -> SpanRecord:
        """What all of them say, as a span."""
        return self._record(span_id="", attributes=self.base)

    def _record(self, **facts: Any) -> SpanRecord:
        return SpanRecord(
            trace_id=self.trace,
            parent_id=f"{self.parent_id:016x}" if self.parent_id else "",
            name=names.STEP,
            flags=self.flags,
            scope=self.scope,
            **facts,
        )
