"""`OpenAgent`, the handle of one agent of an open episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.trace import SpanContext

from mttp.codec import agents as codec
from mttp.codec.plain import text
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["OpenAgent"]


class OpenAgent(Trajectory):
    """
    One agent of an open episode, with its own steps, reward and end.

    Its properties are those of `mttp.model.Agent` that are known so far.
    One of another process can take steps here and can be scored.
    """

    _ACCEPTED = frozenset({"step", "tool_call", "reward", "end"})

    def __init__(
        self,
        episode: Trajectory,
        id: str,
        *,
        start_time: int | None = None,
        remote: SpanContext | None = None,
    ) -> None:
        """`remote` is the context of the span of another process's agent."""
        super().__init__(episode._segment if episode else None, place={a.AGENT_ID: id})
        self._parent_episode = episode
        self._id = id
        if remote is not None:
            self._span, self._own_context, self._is_remote = episode._span, remote, True
        elif episode:
            name = f"{names.AGENT} {text(id, [])}"
            self._span = self._segment.span(
                name, episode._span_context, start_time=start_time, place=self._place
            )

    @property
    def _episode(self) -> Trajectory:
        return self._parent_episode

    @property
    def _outer_current(self) -> object:
        """What is current in its place once it has ended."""
        return self._outer or self._parent_episode

    @property
    def id(self) -> str:
        """The agent's id, unique in the episode."""
        return self._id

    @property
    def length(self) -> int:
        """The number of its steps so far."""
        return self._updated()._steps

    @quiet
    def _introduce(self, metadata: Mapping[str, object] | None, **facts: Any) -> None:
        """Record the facts that are stated when the agent is named."""
        if any(fact is not None for fact in (metadata, *facts.values())) and self._accepts("agent"):
            span = cast(RecordingSpan, self._span)
            span.values |= span.checked(codec.facts, facts)
            self._describe(metadata, None)

    @quiet
    def end(
        self,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
        length: int | None = None,
        advantage: float | None = None,
        policy_version_end: object = None,
        end_time: int | None = None,
    ) -> None:
        """End the agent, and its open steps."""
        if self._accepts("end"):
            self._finish(
                terminated=terminated,
                truncated=truncated,
                length=length,
                advantage=advantage,
                policy_version_end=policy_version_end,
                end_time=end_time,
            )

    def _finish(
        self,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
        length: int | None = None,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        status: str = "",  # noqa: ARG002 - only an episode has a status
        stop_reason: str | None = None,  # noqa: ARG002 - only an episode has a stop reason
        **facts: Any,
    ) -> None:
        end_facts = {"length": length, **facts}
        if self._is_refused({"terminated": terminated, "truncated": truncated, **end_facts}):
            terminated = truncated = None
        self._finish_steps(terminated=terminated, truncated=truncated, end_time=end_time)
        if self._is_remote:
            with self._lock:
                self._closing = self._has_left = True
            return
        span = cast(RecordingSpan, self._span)
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            if self._closing:
                return
            self._closing = True
            counted = {"return_": self.return_, "length": self._steps, **self._end_flags}
            span.values |= span.checked(codec.facts, counted) | span.checked(codec.facts, end_facts)
        self._end_span(end_time)
