"""Ended spans that wait to be written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import chain

from mttp.livespan import Arrival, Ended, spans_of

__all__ = ["Backlog"]


class Backlog:
    """Spans by trace, so that an episode is written side by side; the one waiting longest comes first."""

    def __init__(self) -> None:
        self._traces: OrderedDict[int, list[Arrival]] = OrderedDict()
        self.bytes = 0
        """Roughly what the spans take in a file."""

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._traces)

    @property
    def arrivals(self) -> list[Arrival]:
        """All of them, trace by trace."""
        return list(chain.from_iterable(self._traces.values()))

    @property
    def traces(self) -> list[int]:
        """Their traces."""
        return list(self._traces)

    def add(self, arrival: Arrival) -> None:
        """Add one, or several of one trace."""
        trace_id = arrival.trace_id
        known = self._traces.get(trace_id)
        if known is None:
            known = self._traces[trace_id] = []
        known.append(arrival)
        self.bytes += arrival.size

    def expand(self) -> None:
        """Have spans instead of what stands for several of them."""
        for trace_id, arrivals in self._traces.items():
            self._traces[trace_id] = [*spans_of(arrivals)]

    def extend(self, other: Backlog) -> None:
        """Add what another holds."""
        for trace_id, arrivals in other._traces.items():
            self._traces.setdefault(trace_id, []).extend(arrivals)
        self.bytes += other.bytes

    def take(self, max_bytes: int, *, traces: int | None = None) -> Backlog:
        """Take out the first spans, at most `max_bytes` (but one span at least) of so many traces."""
        taken = Backlog()
        while self._traces and taken.bytes < max_bytes and (traces is None or len(taken) < traces):
            trace_id, arrivals = self._traces.popitem(last=False)
            count, size = 0, 0
            while count < len(arrivals) and (size < max_bytes - taken.bytes):
                size += arrivals[count].size
                count += 1
            taken._traces[trace_id] = arrivals[:count]
            taken.bytes += size
            self.bytes -= size
            if count < len(arrivals):
                self._traces[trace_id] = arrivals[count:]
                self._traces.move_to_end(trace_id, last=False)
        return taken

    def put_back(self, taken: Backlog) -> None:
        """Add what could not be written, behind everything else: it may be what the transport can't take."""
        for trace_id, arrivals in taken._traces.items():
            self._traces[trace_id] = arrivals + self._traces.pop(trace_id, [])
        self.bytes += taken.bytes

    def replace(self, trace_id: int, view: Callable[[Ended], Ended]) -> None:
        """Have each span of a trace as `view` shows it; what they take is not weighed anew."""
        self._traces[trace_id] = list(map(view, spans_of(self._traces[trace_id])))

    def drop(self, trace_id: int) -> list[Ended]:
        """Take out the spans of a trace."""
        arrivals = self._traces.pop(trace_id, [])
        self.bytes -= sum(arrival.size for arrival in arrivals)
        return spans_of(arrivals)
