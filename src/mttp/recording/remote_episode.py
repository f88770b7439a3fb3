"""`RemoteEpisode`, the handle of one process's part of an episode that another process started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from mttp.codec import segments
from mttp.model import ids
from mttp.otlp.spans import AmbientSpan, RecordingSpan
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY, current, settled
from mttp.recording.open_agent import OpenAgent
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.segment import Segment
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["EpisodeContext", "RemoteEpisode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """The current episode, agent and step, as one process passes them to another."""

    run_id: str
    """The run's id."""
    episode_id: str
    """The episode's id."""
    root: SpanContext
    """The root span."""
    ambient: SpanContext
    """The current span: the span of the step or episode, or one below it."""
    next_index: int
    """The index of the next step, of the agent if there is one."""
    agent: tuple[str, SpanContext] | None = None
    """The id and the span of the current agent."""
    step: tuple[int, SpanContext] | None = None
    """The index of the current step, in the episode or among the agent's steps, and its span."""
    group: str | None = None
    """The group's id."""
    baggage: Mapping[str, object] = field(default_factory=dict)
    """The user's own baggage."""


class RemoteEpisode(OpenEpisode):
    """
    The part of another process's episode that this process records.

    It accepts steps, agents, rewards, metrics and metadata. Only the process that started the episode can
    record its ending and its final observation.
    `end`, or the end of the block, ends the part and records its span count.
    """

    _is_remote = True
    _ACCEPTED = frozenset({"step", "tool_call", "agent", "reward", "metric", "set_metadata", "end"})
    _ambient_span: AmbientSpan | None = None
    _step: OpenStep | None = None
    _agent: OpenAgent | None = None

    def __init__(
        self,
        host: RunRecorder | None,
        context: EpisodeContext | None = None,
        *,
        at_end: Callable[[], object] | None = None,
    ) -> None:
        self._episode_context = context
        self._at_end = at_end
        self._segment_id = ""
        if host is None or context is None:
            Trajectory.__init__(self, None)
            return
        self._segment_id = f"{ids.span_id():016x}"
        identity = segments.identity(context.run_id, context.episode_id, self._segment_id)
        flags, episode_id = context.root.trace_flags, context.episode_id
        segment = Segment(host, context.root.trace_id, episode_id, identity, steps=host.steps, flags=flags)
        span = segment.span(names.SEGMENT, context.root, place={})
        Trajectory.__init__(self, segment, span)
        self._own_context = context.root
        group = {} if context.group is None else {a.GROUP_ID: context.group}
        self._identity = {a.RUN_ID: context.run_id, a.EPISODE_ID: context.episode_id, **group}
        self._continue_at(context)
        host.part_started(self)

    def _continue_at(self, context: EpisodeContext) -> None:
        """Continue with the agent and the step that were current."""
        trajectory: Trajectory = self
        if context.agent is not None:
            id, span_context = context.agent
            trajectory = self._agent = OpenAgent(self, id, remote=span_context)
            self._agents = {id: self._agent}
        trajectory._next_index = context.next_index  # the earlier steps belong to another process
        if context.step is not None:
            index, span_context = context.step
            self._step = OpenStep(trajectory, self._host, self._span, index)
            self._step._is_remote, self._step._own_context = True, span_context

    @property
    def segment_id(self) -> str:
        """The part's id, which all its spans have; empty for an inert handle."""
        return self._segment_id

    def _as_context(self) -> Context:
        episode = cast(EpisodeContext, self._episode_context)
        outer = settled(current())
        self._remember_outer(outer.get(TRAJECTORY_KEY))
        self._ambient_span = AmbientSpan(episode.ambient)
        context = trace.set_span_in_context(self._ambient_span, outer)
        for name, value in episode.baggage.items():
            context = baggage.set_baggage(name, value, context)
        context = otel_context.set_value(TRAJECTORY_KEY, self._agent or self, context)
        return otel_context.set_value(STEP_KEY, self._step, context)

    @property
    def _current_span(self) -> AmbientSpan | None:
        return self._ambient_span

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **facts: Any,
    ) -> None:
        self._is_refused(facts)
        parts = [*([] if self._step is None else [self._step]), *self.agents]
        self._end_children((part for part in parts if not part.ended), end_time=end_time)
        self._finish_steps(end_time=end_time)
        span = cast(RecordingSpan, self._span)
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._closing = True
            self._segment.host.part_ended(self)
            span.values[a.SEGMENT_SPAN_COUNT] = self._segment.spans + 1
        self._end_span(end_time)
        if self._at_end is not None:
            self._attempt(self._at_end)

    def _marker(self, span: RecordingSpan) -> RecordingSpan:
        return self._segment.span(names.SEGMENT_START, self._span_context, start_time=span.started, place={})
