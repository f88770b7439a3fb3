"""The episodes that a block of code records, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest.mock import patch

from opentelemetry import context as otel_context
from opentelemetry import trace

from mttp.model.episodes import Episode, Run
from mttp.otlp.spans import RecordingSpan
from mttp.reading import Recording, read
from mttp.recording import configuration
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY
from mttp.recording.isolation import IsolatedRecording
from mttp.recording.run_recorder import RunRecorder
from mttp.recording.session import Session
from mttp.testing.clock import frozen_clock
from mttp.testing.ids import counting_ids
from mttp.transports.memory import MemoryTransport

__all__ = ["Captured", "capture_episodes"]

_TICK = 0.001


class Captured:
    """What was recorded so far, inside the block or after it."""

    def __init__(self, memory: MemoryTransport, apart: IsolatedRecording) -> None:
        self._memory = memory
        self._apart = apart

    @property
    def session(self) -> Session:
        """The session that is open from the start of the block to its end."""
        return cast(Session, self._apart.session)

    @property
    def recording(self) -> Recording:
        """Everything that was recorded, its problems included."""
        for session in self._apart.opened:
            session.flush()
        return read(self._memory)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes, in order of start; one that is still open has the status unfinished."""
        return self.recording.episodes

    @property
    def runs(self) -> list[Run]:
        """The runs, one for each session that was open."""
        return self.recording.runs

    @property
    def faults(self) -> Counter[str]:
        """What was wrong with what was recorded, counted by kind."""
        return sum((session.stats.faults for session in self._apart.opened), Counter[str]())

    def __repr__(self) -> str:
        return f"<Captured: {self.recording!r}>"


@contextmanager
def capture_episodes(*, deterministic: bool = False, **options: Any) -> Iterator[Captured]:
    """
    Keep what the block records in memory; `options` are those of `mttp.configure`, but for the transport.

    A session of the block's own is open in it, under a run id of its own.
    Sessions and episodes that were open before are set aside, and go on after the block.
    What a session records that the block configures itself is captured too, and goes where it says besides.
    With `deterministic`, ids count up and each look at the time is a millisecond later than the one before:
    the same code records the same each time, whatever it is part of, but for what a run says of its machine.

    Raises ConfigureError where the variable OTEL_SDK_DISABLED forbids recording, and what `configure` raises.
    """
    memory = MemoryTransport()
    with ExitStack() as stack:
        if deterministic:
            stack.enter_context(counting_ids())
            stack.enter_context(frozen_clock(tick=_TICK))
        stack.enter_context(_nothing_current())
        apart = stack.enter_context(configuration.isolated(memory, alone=deterministic, **options))
        if deterministic:
            stack.enter_context(_no_markers())
        yield Captured(memory, apart)


@contextmanager
def _no_markers() -> Iterator[None]:
    """Whether an open episode leaves a marker is a matter of time: it leaves none before the block ends."""
    with patch.object(RunRecorder, "mark", lambda _: None):
        yield


@contextmanager
def _nothing_current() -> Iterator[None]:
    """Code in the block is in no episode but those of the block."""
    context = otel_context.set_value(TRAJECTORY_KEY, None)
    context = otel_context.set_value(STEP_KEY, None, context)
    if isinstance(trace.get_current_span(), RecordingSpan):
        context = trace.set_span_in_context(trace.INVALID_SPAN, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        token.var.reset(token)
