"""Steps in columns, as one span."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.trace import SpanContext

from mttp import ids
from mttp.codec import blocks
from mttp.codec.blocks import Column
from mttp.livespan import SPAN_BYTES
from mttp.recorder.light_span import LightSpan
from mttp.recorder.segment import Segment
from mttp.semconv import spans as names

__all__ = ["LiveBlock"]


class LiveBlock(LightSpan):
    """
    Steps of one owner that follow each other; they are laid out in columns when somebody asks.

    That is most often the thread that writes.
    """

    _name = names.STEPS

    def __init__(
        self,
        segment: Segment,
        parent: SpanContext,
        place: Mapping[str, Any],
        columns: Callable[[], Mapping[str, Column]],
        *,
        first_index: int,
        start_times: Sequence[int],
        end_times: Sequence[int],
        size: int,
    ) -> None:
        """
        Steps that began and ended at those times, and take roughly `size` bytes.

        `place` says what their span does of whose they are, besides the episode's identity.
        """
        self._segment = segment
        self._parent = parent
        self._span_id = ids.span_id()
        self._place = place
        self._columns = columns
        self._times: dict[str, Any] = {
            "first_index": first_index,
            "start_times": start_times,
            "end_times": end_times,
        }
        self._is_open, self._is_light, self.is_plain = True, False, False
        self._scalars = self._end_time = self.block = None
        self.size = SPAN_BYTES + size
        self._start(min(start_times))

    def _weigh(self) -> int:
        return self.size

    def _say(self) -> dict[str, Any]:
        place = {**self._segment.identity, **self._place}
        try:
            return {**place, **blocks.encode(self._columns(), **self._times)}
        except Exception as error:  # whatever a foreign object raises when it is looked at
            self._segment.fault("internal_error", f"steps: {error!r}")
            return place
