"""What transports are given: a span that has ended."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from mttp.codec import kinds
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Ended"]


class Ended(ReadableSpan):
    """Any span that has ended, ours or another library's."""

    trace_id: int
    """Its trace."""
    size: int
    """Roughly what it takes in a file, in bytes."""

    @property
    def identity(self) -> SpanContext:
        """Its context."""
        raise NotImplementedError

    @property
    def values(self) -> dict[str, Any]:
        """Its attributes, those of ours as recorded, numpy arrays and all."""
        raise NotImplementedError

    @property
    def of_episode(self) -> bool:
        """Whether it belongs to an episode."""
        return a.EPISODE_ID in self.values

    @property
    def is_last(self) -> bool:
        """Whether its trace ends with it, or this process's part of the trace."""
        return self.parent is None or kinds.of(self.name, self.values, is_root=False) == names.SEGMENT

    def with_values(self, values: dict[str, Any]) -> Ended:
        """The same span with other attributes."""
        raise NotImplementedError
