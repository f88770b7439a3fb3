"""A queue of ended spans, counted in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from mttp.otlp.frames import Frame

__all__ = ["FrameQueue", "traces"]


def traces(frames: Iterable[Frame]) -> dict[int, list[Frame]]:
    """Return spans by trace, in the order in which each trace appears first."""
    found: dict[int, list[Frame]] = {}
    for frame in frames:
        found.setdefault(frame.trace_id, []).append(frame)
    return found


class FrameQueue:
    """Spans in the order in which they are exported; those of a trace that come together stay together."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.bytes = 0
        """The size of the spans."""

    def __len__(self) -> int:
        """The number of spans."""
        return len(self._frames)

    def extend(self, frames: Iterable[Frame]) -> None:
        """Add spans at the end."""
        for frame in frames:
            self._frames.append(frame)
            self.bytes += len(frame)

    def put_first(self, frames: Sequence[Frame]) -> None:
        """Add spans at the head."""
        self._frames.extendleft(reversed(frames))
        self.bytes += sum(map(len, frames))

    def take(self, max_bytes: int, *, alone: bool = False) -> list[Frame]:
        """Remove and return the first spans, about `max_bytes`; `alone` only those of the first trace."""
        taken: list[Frame] = []
        size, waiting = 0, self._frames
        while waiting and size < max_bytes:
            if alone and taken and waiting[0].trace_id != taken[0].trace_id:
                break
            taken.append(waiting.popleft())
            size += len(taken[-1])
        self.bytes -= size
        return taken

    def drop(self, trace_id: int) -> list[Frame]:
        """Remove and return the spans of a trace."""
        dropped = [frame for frame in self._frames if frame.trace_id == trace_id]
        if dropped:
            self._frames = deque(frame for frame in self._frames if frame.trace_id != trace_id)
            self.bytes -= sum(map(len, dropped))
        return dropped

    def clear(self) -> list[Frame]:
        """Remove and return all spans."""
        frames, self._frames, self.bytes = list(self._frames), deque(), 0
        return frames
