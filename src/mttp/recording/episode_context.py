"""Where in an episode one process hands over to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.trace import SpanContext

__all__ = ["AgentContext", "StepContext", "EpisodeContext"]


@dataclass(frozen=True, slots=True)
class AgentContext:
    """An agent, and where it is in the trace."""

    id: str
    """Its identity within the episode."""
    span: SpanContext
    """Its span."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """A step, and where it is in the trace."""

    index: int
    """Its position in the episode, or among the steps of its agent."""
    span: SpanContext
    """Its span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """What a process needs to know to go on with another's episode."""

    run_id: str
    """The run that the episode belongs to."""
    episode_id: str
    """The episode."""
    root: SpanContext
    """Its root."""
    ambient: SpanContext
    """The span that is current: of the step or episode, or of something within it."""
    next_index: int
    """Index of the next step, of the agent where there is one."""
    agent: AgentContext | None = None
    """The agent that is current."""
    step: StepContext | None = None
    """The step that is current."""
    group: str | None = None
    """The group that the episode is compared within."""
    baggage: Mapping[str, object] = field(default_factory=dict)
    """The user's own baggage."""
