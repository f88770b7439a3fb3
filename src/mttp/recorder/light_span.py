"""Spans that a training loop pays for: what they say is worked out when somebody asks, and not before."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from mttp.codec.plain import nanoseconds
from mttp.livespan import LiveSpan

if TYPE_CHECKING:
    from mttp.recorder.segment import Segment

__all__ = ["LightSpan"]


class _OfSegment:
    """What a span has from its segment, as long as it was given nothing else."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name.removeprefix("_")

    def __get__(self, span: Any, _: type) -> Any:
        return getattr(span._segment, self._name)


class LightSpan(LiveSpan):
    """
    A step or an episode's root: there are many, and nearly all are written without a second look.

    Whoever makes one sets `_segment` and `_span_id`, and calls `_start`.
    """

    _segment: Segment
    _scalars: dict[str, Any] | None
    _clock: Any = _OfSegment()
    _origin: Any = _OfSegment()
    _sink: Any = _OfSegment()
    trace_id: Any = property(attrgetter("_segment.trace_id"))

    def _start(self, start_time: int | None) -> None:
        """Start at a time that somebody gave, or else now; those who look on are shown it."""
        given = None if start_time is None else self.checked(nanoseconds, start_time)
        self._start_time = self._clock.now() if given is None else given
        if self._origin.observers is not None:
            self._show_start(self._origin.observers)

    @property
    def scalars(self) -> dict[str, Any]:
        """Its attributes but for a token block, worked out the first time that somebody asks."""
        if self._scalars is None:
            said = self._say()
            if self._scalars is None:  # still: another thread may ask as well, and change what it gets
                self._scalars = said
        return self._scalars

    @scalars.setter
    def scalars(self, scalars: dict[str, Any]) -> None:
        self._scalars = scalars

    def _say(self) -> dict[str, Any]:
        """What the span says as long as nobody added anything."""
        raise NotImplementedError
