"""Steps in columns, as one span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.trace import SpanContext

from mttp import ids
from mttp.codec.deferred import TRANSITIONS, Deferred
from mttp.livespan import SPAN_BYTES
from mttp.recorder.light_span import LightSpan
from mttp.recorder.segment import Segment
from mttp.semconv import spans as names

__all__ = ["LiveBlock", "Together"]


class Together(Protocol):
    """Steps of one owner that follow each other."""

    @property
    def faults(self) -> Sequence[str]:
        """What is wrong with them that was not counted yet."""

    def said(self, first_index: int) -> dict[str, Any]:
        """Their span's attributes, but for whose steps they are."""

    def travelling(self) -> tuple[Any, ...] | None:
        """The steps as another process takes them; None where they can't travel."""


class LiveBlock(LightSpan):
    """
    Steps of one owner that follow each other; they are laid out in columns when somebody asks.

    That is most often the thread that writes, or its helper.
    """

    _name = names.STEPS
    is_last = False
    of_episode = True

    def __init__(
        self,
        segment: Segment,
        parent: SpanContext,
        place: Mapping[str, Any],
        steps: Together,
        first_index: int,
        start_time: int,
        size: int,
    ) -> None:
        """
        Steps of which the first began at `start_time`, and which take roughly `size` bytes.

        `place` says what their span does of whose they are, besides the episode's identity.
        """
        self._segment = segment
        self._parent = parent
        self._span_id = ids.span_id()
        self._place = place
        self._steps = steps
        self._first_index = first_index
        self._uncounted = [None]
        self._is_open, self._is_light, self.is_plain = True, False, False
        self._scalars = self._end_time = self.block = None
        self.size = SPAN_BYTES + size
        self._start(start_time)

    def _weigh(self) -> int:
        return self.size

    def _say(self) -> dict[str, Any]:
        said = self._said_of_all()
        try:
            said.update(self._steps.said(self._first_index))
            self._count()
        except Exception as error:  # whatever a foreign object raises when it is looked at
            self._segment.fault("internal_error", f"steps: {error!r}")
        return said

    def _said_of_all(self) -> dict[str, Any]:
        return {**self._segment.identity, **self._place}

    def _count(self) -> None:
        """Count what is wrong with the steps, which is known by now, once."""
        try:
            self._uncounted.pop()
        except IndexError:
            return
        for fault in self._steps.faults:
            kind, _, detail = fault.partition(": ")
            self._segment.fault(kind, detail)

    def facts(self) -> tuple[Mapping[str, Any], Deferred | None]:
        """Its attributes, the columns still to be made, where nobody has asked for them yet."""
        travelling = self._steps.travelling() if self._scalars is None else None
        if travelling is None:
            return super().facts()
        return self._said_of_all(), (TRANSITIONS, (self._first_index, *travelling))

    def conclude_lightly(self, end_time: int) -> None:
        """End it at a time of our own clock; nobody else can have a hand in it."""
        del self._is_open
        self._end_time = end_time
        self._segment.ended(self)
