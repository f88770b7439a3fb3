"""`RemoteEpisode`, the handle of one process's part of an episode that another process started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from mttp.codec import segments
from mttp.model import ids
from mttp.otlp.spans import AmbientSpan, RecordingSpan
from mttp.recording.episode_context import EpisodeContext
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY, Host, current, settled
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.remote import RemoteAgent, RemoteHandle, RemoteStep
from mttp.recording.segment import Segment
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["RemoteEpisode"]


class RemoteEpisode(RemoteHandle, OpenEpisode):
    """
    The part of another process's episode that this process records.

    It accepts steps, agents, rewards, metrics and metadata. Only the process that started the episode can
    record its ending and its final observation.
    `end`, or the end of the block, ends the part and records its span count.
    """

    _ambient_span: AmbientSpan | None = None
    _ACCEPTED = frozenset({"step", "tool_call", "agent", "reward", "metric", "set_metadata", "end"})

    def __init__(
        self,
        host: Host | None,
        context: EpisodeContext | None = None,
        *,
        at_end: Callable[[], object] | None = None,
    ) -> None:
        self._episode_context = context
        self._at_end = at_end
        self._step: RemoteStep | None = None
        self._agent: RemoteAgent | None = None
        self._segment_id = ""
        if host is None or context is None:
            Trajectory.__init__(self, None)
            return
        self._segment_id = f"{ids.span_id():016x}"
        identity = segments.identity(context.run_id, context.episode_id, self._segment_id)
        segment = Segment(
            host,
            context.root.trace_id,
            context.episode_id,
            identity,
            steps=host.steps,
            flags=context.root.trace_flags,
        )
        Trajectory.__init__(self, segment)
        self._span = self._segment.span(names.SEGMENT, context.root, place={})
        self._continue_at(context)
        group = {} if context.group is None else {a.GROUP_ID: context.group}
        self._identity = {a.RUN_ID: context.run_id, a.EPISODE_ID: context.episode_id, **group}
        host.part_started(self)

    def _continue_at(self, context: EpisodeContext) -> None:
        """Continue with the agent and the step that were current."""
        if context.agent is None:
            self._next_index = context.next_index  # the earlier steps belong to another process
        else:
            self._agent = RemoteAgent(self, context.agent, context.next_index)
            self._agents = {context.agent.id: self._agent}
        if context.step is not None:
            self._step = RemoteStep(self._agent or self, context.step)

    @property
    def segment_id(self) -> str:
        """The part's id, which all its spans have; empty for an inert handle."""
        return self._segment_id

    @property
    def _span_context(self) -> SpanContext:
        """The context of the episode's root span."""
        return cast(EpisodeContext, self._episode_context).root

    @property
    def span_id(self) -> str:
        """The span id of the episode's root, 16 hex digits; empty for an inert handle."""
        return f"{self._span_context.span_id:016x}" if self else ""

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

    def _repeat_reward(self, scoring: Mapping[str, Any]) -> None:
        """Do nothing: the root span belongs to the process that started the episode."""

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **facts: Any,
    ) -> None:
        self._refuse_facts(facts)
        parts = [*([] if self._step is None else [self._step]), *self.agents]
        self._end_children((part for part in parts if not part.ended), end_time=end_time)
        self._finish_steps(end_time=end_time)
        span = cast(RecordingSpan, self._span)
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._close()
            self._segment.host.part_ended(self)
            span.values[a.SEGMENT_SPAN_COUNT] = self._segment.spans + 1
        self._end_span(end_time)
        if self._at_end is not None:
            self._attempt(self._at_end)

    def _write_marker(self) -> None:
        """Record the start marker, unless it is recorded or the part has ended; called before each write."""
        with self._lock:
            if self._marked or self.ended or self._closing:
                return
            self._marked = True
            start = cast(RecordingSpan, self._span).started
            marker = self._segment.span(names.SEGMENT_START, self._span_context, start_time=start, place={})
            marker.end_at_once()
