"""Capturing the episodes that a block of code records."""

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
from mttp.recording.configuration import IsolatedRecording
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY
from mttp.recording.run_recorder import RunRecorder
from mttp.recording.session import Session
from mttp.testing.clock import frozen_clock
from mttp.testing.ids import counting_ids
from mttp.transports.memory import MemoryTransport

__all__ = ["Captured", "capture_episodes"]

_TICK = 0.001


class Captured:
    """The recording of a `capture_episodes` block; it can be read inside the block and after it."""

    def __init__(self, memory: MemoryTransport, isolated: IsolatedRecording) -> None:
        self._memory = memory
        self._isolated = isolated

    @property
    def session(self) -> Session:
        """The block's own session."""
        return cast(Session, self._isolated.session)

    @property
    def recording(self) -> Recording:
        """Everything recorded so far, with problems and tables."""
        for session in self._isolated.opened:
            session.flush()
        return read(self._memory)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes, in order of start; an open episode has the status "unfinished"."""
        return self.recording.episodes

    @property
    def runs(self) -> list[Run]:
        """The runs, one for each session that was open."""
        return self.recording.runs

    @property
    def faults(self) -> Counter[str]:
        """Recording faults, counted by kind."""
        return sum((session.stats.faults for session in self._isolated.opened), Counter[str]())

    def __repr__(self) -> str:
        return f"<Captured: {self.recording!r}>"


@contextmanager
def capture_episodes(*, deterministic: bool = False, **options: Any) -> Iterator[Captured]:
    """
    Keep everything that the block records in memory.

    `options` are the arguments of `mttp.configure` without the transport.
    The block has a session and a run of its own.
    Sessions and episodes that are open before are suspended, and continue after the block.
    A session that the block configures itself is captured too, and also writes to its own transport.
    With `deterministic`, ids count up and each reading of the clock is a millisecond later than the last, so
    that the same code makes the same recording each time, except for the run's facts about the machine.

    Raises ConfigureError if the variable OTEL_SDK_DISABLED disables recording, and the errors of `configure`.
    """
    memory = MemoryTransport()
    with ExitStack() as stack:
        if deterministic:
            stack.enter_context(counting_ids())
            stack.enter_context(frozen_clock(tick=_TICK))
        stack.enter_context(_no_current_episode())
        isolated = stack.enter_context(configuration.isolated(memory, alone=deterministic, **options))
        if deterministic:
            stack.enter_context(_no_markers())
        yield Captured(memory, isolated)


@contextmanager
def _no_markers() -> Iterator[None]:
    """Write no start markers of open episodes, which depend on timing, before the block ends."""
    with patch.object(RunRecorder, "mark", lambda _: None):
        yield


@contextmanager
def _no_current_episode() -> Iterator[None]:
    """Hide the current episode and step from the block."""
    context = otel_context.set_value(TRAJECTORY_KEY, None)
    context = otel_context.set_value(STEP_KEY, None, context)
    if isinstance(trace.get_current_span(), RecordingSpan):
        context = trace.set_span_in_context(trace.INVALID_SPAN, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        token.var.reset(token)
