"""Handles of steps and agents that another process owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from opentelemetry.trace import SpanContext
from typing_extensions import Unpack

from mttp.codec import rewards
from mttp.codec.plain import Faults
from mttp.otlp.spans import Outlasted, RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.arguments import SCORING_FACTS, RewardValue, ScoringFacts, check_names
from mttp.recording.episode_context import AgentContext, StepContext
from mttp.recording.handle import Handle, document_of
from mttp.recording.open_agent import OpenAgent
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a

__all__ = ["RemoteHandle", "RemoteAgent", "RemoteStep"]

_ERROR_FACTS = ("status", "stop_reason", "error_type", "error_message")


class RemoteHandle(Handle):
    """A handle of an object of another process; faults are noted on the span of this process's part."""

    _ACCEPTED: ClassVar[frozenset[str]]
    """The calls that can be made in this process."""

    def _accepts(self, what: str) -> bool:
        if what in self._ACCEPTED and not self.ended:
            return True
        if what in self._ACCEPTED:
            self._fault("after_end", f"{what} after the end")
            return False
        self._refuse(what)
        return False

    @property
    def _current_span(self) -> Outlasted | None:
        """None: the span of its block is that of this process's part."""
        return None

    def _refuse(self, what: str) -> None:
        detail = f"{what} can be recorded only by the process that started it"
        if self.ended:
            self._fault("not_the_owner", detail)
        else:
            cast(RecordingSpan, self._span).fault("not_the_owner", detail)

    def _refuse_facts(self, facts: dict[str, Any]) -> None:
        for name, fact in facts.items():
            if fact is not None and name not in _ERROR_FACTS:
                self._refuse(name)


class RemoteStep(RemoteHandle, OpenStep):
    """A step of another process, which can be scored and can have calls."""

    _ACCEPTED = frozenset({"reward", "a call", "end"})

    def __init__(self, owner: Trajectory, step: StepContext) -> None:
        super().__init__(owner, owner._host, owner._span, step.index)
        self._remote_context = step.span
        self._has_ended = False
        self._remote_place = {**owner._place, a.STEP_INDEX: step.index}

    @property
    def _span_context(self) -> SpanContext:
        """The context of the step's span."""
        return self._remote_context

    @property
    def _place(self) -> dict[str, Any]:
        """The attributes that assign its scorings and calls to the step."""
        return self._remote_place

    @property
    def span_id(self) -> str:
        """The step's span id, 16 hex digits."""
        return f"{self._remote_context.span_id:016x}"

    @property
    def ended(self) -> bool:
        """Whether the handle has ended in this process."""
        return self._has_ended or super().ended

    @quiet
    def reward(self, value: RewardValue = rewards.COMPUTED, **scoring: Unpack[ScoringFacts]) -> None:
        """Record a scoring of the step; only the process that started the step can set its reward."""
        check_names("reward", scoring, SCORING_FACTS)
        if self._accepts("reward"):
            faults: Faults = []
            self._record_scoring(rewards.make(value, faults, **scoring), faults, document_of(value))

    @quiet
    def end(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End this handle; the step continues in the process that started it."""
        if self._accepts("end"):
            self._finish(terminated=terminated, truncated=truncated, end_time=end_time)

    def _finish(self, *, end_time: int | None = None, **facts: Any) -> None:
        self._refuse_facts(facts)
        self._has_ended = True
        self._end_children((call for call in self._calls if not call.ended), end_time=end_time)

    def _conclude(self, end_time: int | None) -> None:
        """Do nothing: the step's span belongs to its process."""


class RemoteAgent(RemoteHandle, OpenAgent):
    """An agent of another process, which can take steps here and can be scored."""

    _ACCEPTED = frozenset({"step", "tool_call", "reward", "end"})

    def __init__(self, part: OpenEpisode, agent: AgentContext, next_index: int) -> None:
        Trajectory.__init__(self, part._segment, part._span, place={a.AGENT_ID: agent.id})
        self._parent_episode = part
        self._id = agent.id
        self._own_context = agent.span
        self._next_index = next_index

    @property
    def span_id(self) -> str:
        """The agent's span id, 16 hex digits."""
        return f"{self._span_context.span_id:016x}"

    @property
    def ended(self) -> bool:
        """Whether the handle has ended in this process."""
        return self._closing or super().ended

    def _repeat_reward(self, scoring: Mapping[str, Any]) -> None:
        """Do nothing: the agent's span belongs to its process."""

    def _finish(self, *, end_time: int | None = None, **facts: Any) -> None:
        self._refuse_facts(facts)
        self._finish_steps(end_time=end_time)
        with self._lock:
            self._close()

    def _conclude(self, end_time: int | None) -> None:
        """Do nothing: the agent's span belongs to its process."""
