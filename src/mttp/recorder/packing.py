"""Steps that have ended, and are written as columns of spans that hold many."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.trace import SpanContext, StatusCode

from mttp.codec import blocks
from mttp.codec.documents import opened
from mttp.livespan import LiveSpan
from mttp.recorder.block import Block, Rows, Taken
from mttp.recorder.handle import Host
from mttp.recorder.live_block import LiveBlock
from mttp.recorder.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["AUTO", "MODES", "PACKED", "SPANS", "Packing", "can_be_packed"]

SPANS, PACKED, AUTO = MODES = ("spans", "packed", "auto")
"""Every step is a span; steps are packed where they can be; they are once there have been many such."""
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
    Where the steps of an episode, or of an agent, gather that are written together.

    None do while somebody else's span processors look on.
    """

    def __init__(self, owner: Owner, segment: Segment) -> None:
        self._owner: Owner | None = owner
        self._left: tuple[SpanContext, Mapping[str, Any]] | None = None
        """Where the steps of late threads belong, once the owner was let go."""
        self._segment = segment
        self._rows: list[_Row] = []
        self._bytes = 0
        self._block: Block | None = None
        self._writing = threading.Lock()

    @property
    def _host(self) -> Host:
        return self._segment.host

    def takes(self, span: LiveSpan) -> bool:
        """Take a step that has ended, and can be packed; False where no more is taken."""
        if self._owner is None:
            return False
        self._take(span)
        return True

    def _take(self, span: LiveSpan) -> None:
        said = {key: value for key, value in opened(span.scalars).items() if key not in _OF_THE_BLOCK}
        start = span.started
        self._rows.append((span.scalars[a.STEP_INDEX], said, start, span.end_time or start))
        self._bytes += span.size
        if len(self._rows) == 1:
            self._host.gathers(self)
        elif len(self._rows) >= blocks.MAX_STEPS or self._bytes >= MAX_BYTES:
            self.write()

    def gather(self, block: Block) -> None:
        """Write what gathers there from here on; whoever adds the first calls `gathers` of the session."""
        self.write()
        self._block = block

    def write(self, *, wait: bool = True) -> None:
        """Hand on what has gathered; without `wait` nothing, where somebody is at it already."""
        if (not self._rows and self._block is None) or not self._writing.acquire(blocking=wait):
            return
        try:
            self._write()
        except Exception as error:  # whatever a foreign object raises when it is looked at
            self._segment.fault("internal_error", f"steps: {error!r}")
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
        if owner is not None:
            self._left = (owner.at, owner.place)
        self._owner = None
        self.write()  # of a thread that was a moment late; a later one has it written as any other

    def _write(self) -> None:
        owner = self._owner
        at = self._left if owner is None else (owner.at, owner.place)
        if at is None:
            return
        while owner is not None and self._block is not None and (taken := self._block.take()) is not None:
            block = LiveBlock(self._segment, *at, taken, owner.took(taken), taken.start_time, taken.size)
            block.conclude_lightly(taken.end_time)
        count = len(self._rows)
        rows, size, self._bytes = self._rows[:count], self._bytes, 0
        del self._rows[:count]
        for run in _runs(sorted(rows, key=lambda row: row[0])):
            indices, said, starts, ends = zip(*run, strict=True)
            share = size * len(run) // count
            steps = Rows(said, starts, ends)
            LiveBlock(self._segment, *at, steps, indices[0], min(starts), share).end(max(ends))


def can_be_packed(span: LiveSpan) -> bool:
    """
    Whether columns hold all that a step's span says.

    It has a span of its own where anybody may refer to that: it has children, or its id is known;
    and where it says what columns don't hold: tokens, events, links or an error.
    """
    if span.block is not None or span._context is not None or span._name != names.STEP:
        return False
    return span.is_plain or (
        (span.own() is not None or a.TOKEN_ENCODING not in span.scalars)
        and not (span._events or span._links)
        and span._status.status_code is StatusCode.UNSET
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
