"""The current episode, agent and step, as one process passes them to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.trace import SpanContext

__all__ = ["AgentContext", "StepContext", "EpisodeContext"]


@dataclass(frozen=True, slots=True)
class AgentContext:
    """An agent's id and span."""

    id: str
    """The agent's id, unique in the episode."""
    span: SpanContext
    """Its span context."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """A step's index and span."""

    index: int
    """The index in the episode, or among the agent's steps."""
    span: SpanContext
    """Its span context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeContext:
    """What a process needs to continue another process's episode."""

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
    agent: AgentContext | None = None
    """The current agent."""
    step: StepContext | None = None
    """The current step."""
    group: str | None = None
    """The group's id."""
    baggage: Mapping[str, object] = field(default_factory=dict)
    """The user's own baggage."""
