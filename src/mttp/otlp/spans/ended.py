"""The base class of ended spans, which transports take."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, Status, TraceState
from typing_extensions import Self

from mttp.codec import kinds
from mttp.otlp.frames import Frame
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Arrival", "EndedSpan"]


class EndedSpan(ReadableSpan):
    """An ended span of mttp or of another library."""

    trace_id: int
    """Id of its trace."""
    size: int
    """Approximate size in a file, in bytes."""

    @property
    def identity(self) -> SpanContext:
        """Its span context."""
        raise NotImplementedError

    @property
    def values(self) -> dict[str, Any]:
        """Its attributes; those of mttp may be numpy arrays."""
        raise NotImplementedError

    @property
    def is_sampled(self) -> bool:
        """Whether its trace is sampled."""
        return self.identity.trace_flags.sampled

    @property
    def of_episode(self) -> bool:
        """Whether it belongs to an episode."""
        return a.EPISODE_ID in self.values

    @property
    def is_last(self) -> bool:
        """Whether it is the last span of its trace, or of this process's part of the trace."""
        return self.parent is None or kinds.of(self.name, self.values, is_root=False) == names.SEGMENT

    def with_values(self, values: dict[str, Any]) -> Self:
        """Return a copy of the span with other attributes."""
        raise NotImplementedError

    def with_trace_state(self, state: TraceState) -> Self:
        """Return a copy of the span with another trace state."""
        shown, context = copy.copy(self), self.identity
        shown._context = SpanContext(
            context.trace_id, context.span_id, context.is_remote, context.trace_flags, state
        )
        return shown

    @property
    def texts(self) -> tuple[str, list[Mapping[str, Any]]]:
        """The description of its status, and the attributes of its events, then of its links."""
        events = [mark.attributes for mark in self._events]
        links = [mark.attributes for mark in self._links]
        return self._status.description or "", [dict(mark or {}) for mark in (*events, *links)]

    def with_texts(self, description: str, marks: Sequence[Mapping[str, Any]]) -> Self:
        """Return the span with another status description, and other attributes of events and links."""
        if not marks and description == (self._status.description or ""):
            return self
        shown, count = copy.copy(self), len(self._events)
        shown._status = Status(self._status.status_code, description or None)
        shown._events = list(map(_marked, self._events, marks[:count]))
        shown._links = list(map(_marked, self._links, marks[count:]))
        return shown


Arrival: TypeAlias = EndedSpan | Frame
"""An ended span in a queue."""

_Mark = TypeVar("_Mark", Event, Link)


def _marked(mark: _Mark, attributes: Mapping[str, Any]) -> _Mark:
    """Return a copy of an event or link with other attributes."""
    shown = copy.copy(mark)
    shown._attributes = dict(attributes)
    return shown
