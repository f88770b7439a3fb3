"""What becomes of steps that have ended: spans of their own, or columns of spans that hold many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.trace import SpanContext, StatusCode

from mttp.codec import blocks
from mttp.codec.blocks import Column
from mttp.livespan import LiveSpan
from mttp.recorder.block import Block, Taken
from mttp.recorder.handle import Host
from mttp.recorder.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["AUTO", "MODES", "PACKED", "SPANS", "Packing"]

SPANS, PACKED, AUTO = MODES = ("spans", "packed", "auto")
"""Every step is a span; steps are packed where they can be; they are once there have been many such."""
AUTO_STEPS = 1000
"""Steps of an episode, or of an agent, that are spans before others are packed by themselves."""
MAX_BYTES = 512 * 1024
"""Roughly what one span may hold."""

_OF_THE_BLOCK = frozenset({a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID, a.STEP_INDEX})

_Row = tuple[int, dict[str, Any], int, int]
"""A step's index, attributes, start and end."""


class Owner(Protocol):
    """What packing needs of the episode, or of the agent, whose steps they are."""

    @property
    def segment(self) -> Segment:
        """Who makes its spans."""

    @property
    def at(self) -> SpanContext:
        """The span that its steps are children of."""

    @property
    def place(self) -> Mapping[str, Any]:
        """What its spans say of whose they are."""

    def took(self, taken: Taken) -> int:
        """Enter steps that were no handles of their own; the index of the first."""


class Packing:
    """
    Where a trajectory's steps go when they have ended.

    A step has a span of its own where anybody may refer to that: it has children, or its id is known;
    and where it says what columns don't hold: tokens, events, links or an error.
    All have one while somebody else's span processors look on.
    """

    def __init__(self, owner: Owner, segment: Segment | None, mode: str) -> None:
        self.mode = self.stated = mode
        self.sink: Any = segment if mode == SPANS else self
        """Who takes the steps."""
        self._owner: Owner | None = owner
        self._left: tuple[SpanContext, Mapping[str, Any]] | None = None
        """Where the steps of late threads belong, once the owner was let go."""
        self._segment = segment
        self._seen = 0
        self._rows: list[_Row] = []
        self._bytes = 0
        self._block: Block | None = None
        self._writing = threading.Lock()

    @property
    def _host(self) -> Host:
        assert self._segment is not None
        return self._segment.host

    @property
    def packs(self) -> bool:
        """Whether the next step is packed, if it can be."""
        return self.mode == PACKED and self._host.origin.observers is None

    def ended(self, span: LiveSpan) -> None:
        """Take a step's span that has ended."""
        segment = self._segment
        assert segment is not None
        if self._owner is None or not self._takes(span):
            segment.ended(span)
            return
        said = {key: value for key, value in span.scalars.items() if key not in _OF_THE_BLOCK}
        start = span.started
        self._rows.append((span.scalars[a.STEP_INDEX], said, start, span.end_time or start))
        self._bytes += span.size
        if len(self._rows) == 1:
            self._host.gathers(self)
        elif len(self._rows) >= blocks.MAX_STEPS or self._bytes >= MAX_BYTES:
            self.write()

    def _takes(self, span: LiveSpan) -> bool:
        can_be = _can_be_packed(span)
        if self.mode == AUTO:
            self._seen += 1
            if not can_be:
                self.mode, self.sink = SPANS, self._segment
            elif self._seen >= AUTO_STEPS:
                self.mode = PACKED  # from the next one on
            return False
        return can_be and self.packs

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        assert self._segment is not None
        self._segment.fault(kind, detail)

    def block(self, columns: Callable[..., Mapping[str, Column]], start_time: int) -> Block:
        """Where transitions gather from here on; whoever adds the first calls `gathers` of the session."""
        self.write()
        self._block = Block(columns, start_time)
        return self._block

    def write(self, *, wait: bool = True) -> None:
        """Hand on what has gathered; without `wait` nothing, where somebody is at it already."""
        if (not self._rows and self._block is None) or not self._writing.acquire(blocking=wait):
            return
        try:
            self._write()
        except Exception as error:  # whatever a foreign object raises when it is looked at
            self.fault("internal_error", f"steps: {error!r}")
        finally:
            self._writing.release()
        if self._rows or (self._block is not None and self._block.rows):  # that came meanwhile
            self._host.gathers(self)

    def close(self) -> None:
        """
        Hand on what is left, once the owner takes nothing more.

        The owner is let go: it holds this, and episodes are not to wait for the garbage collector.
        """
        self.write()
        owner = self._owner
        if owner is not None and self.sink is self:
            self._left = (owner.at, owner.place)
        self._owner = None
        self.write()  # of a thread that was a moment late; a later one has it written as any other

    def _write(self) -> None:
        owner = self._owner
        at = self._left if owner is None else (owner.at, owner.place)
        if at is None:
            return
        while owner is not None and self._block is not None and (taken := self._block.take()) is not None:
            first = owner.took(taken)
            self._hand_on(at, taken.columns, first, taken.start_times, taken.end_times)
        count = len(self._rows)
        rows, self._bytes = self._rows[:count], 0
        del self._rows[:count]
        for run in _runs(sorted(rows, key=lambda row: row[0])):
            indices, said, starts, ends = zip(*run, strict=True)
            self._hand_on(at, blocks.columns(said), indices[0], starts, ends)

    def _hand_on(
        self,
        at: tuple[SpanContext, Mapping[str, Any]],
        columns: Mapping[str, Column],
        first: int,
        starts: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        values = blocks.encode(columns, first_index=first, start_times=starts, end_times=ends)
        assert self._segment is not None
        parent, place = at
        span = self._segment.span(names.STEPS, parent, start_time=min(starts), place={**place, **values})
        span.end(max(ends))


def _can_be_packed(span: LiveSpan) -> bool:
    return (
        span._context is None
        and span.block is None
        and (span.own() is not None or a.TOKEN_ENCODING not in span.scalars)
        and not (span._events or span._links)
        and span._status.status_code is StatusCode.UNSET
        and span.name == names.STEP
    )


def _runs(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Steps that follow each other without a gap, as many as one span may hold."""
    run: list[_Row] = []
    for row in rows:
        if run and (row[0] != run[-1][0] + 1 or len(run) >= blocks.MAX_STEPS):
            yield run
            run = []
        run.append(row)
    if run:
        yield run
