"""`target` resolves an episode or step from a handle, a value or ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.trace import Link, SpanContext

from mttp.codec.plain import scalar_text
from mttp.model.episodes import Episode, Step
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import RecordingSpan
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep

__all__ = ["Target", "link", "target"]

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An episode, or a step of one."""

    trace_id: str
    """The episode's trace id, 32 hex digits."""
    span_id: str = ""
    """The span id of the episode's root or of the step, 16 hex digits; empty if unknown."""
    step: int | None = None
    """The step's index; None for an episode, or if unknown."""
    is_step: bool = False
    """Whether the target is a step."""


def target(given: object) -> Target:
    """
    Return the target for an episode's handle, value or trace id, a step's handle, or (episode, step).

    In (episode, step) the step is its index, span id, handle or value. Raises ValueError for anything else.
    """
    try:
        return _target(given)
    except ValueError:
        raise
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        raise ValueError(f"{scalar_text(given):.80} is not a recorded episode or step") from error


def _target(source: object) -> Target:
    if isinstance(source, OpenStep) and source:
        trace_id = cast(RecordingSpan, source._span).trace_id
        return Target(trace_id=f"{trace_id:032x}", span_id=source.span_id, step=source.index, is_step=True)
    if isinstance(source, (OpenEpisode, Episode)) and source.trace_id:
        return Target(trace_id=_id(source.trace_id, _TRACE_ID), span_id=source.span_id)
    if isinstance(source, str):
        return Target(trace_id=_id(source, _TRACE_ID))
    if isinstance(source, (tuple, list)) and len(source) == 2:
        return _step(_target(source[0]).trace_id, source[1])
    raise ValueError(f"{scalar_text(source):.80} is not a recorded episode or step, or a trace id")


def _step(trace_id: str, source: object) -> Target:
    if isinstance(source, (OpenStep, Step)):
        return Target(trace_id=trace_id, span_id=source.span_id, step=source.index, is_step=True)
    if isinstance(source, str):
        return Target(trace_id=trace_id, span_id=_id(source, _SPAN_ID), is_step=True)
    index = _index(source)
    if index is None or index < 0:
        raise ValueError(f"{scalar_text(source):.80} is neither the index nor the span id of a step")
    return Target(trace_id=trace_id, step=index, is_step=True)


def _index(value: object) -> int | None:
    """Return the index of an integer of any library; None for any other value."""
    try:
        return None if isinstance(value, bool) else cast(Any, value).__index__()
    except (AttributeError, TypeError):
        return None


def _id(identity: str, pattern: re.Pattern[str]) -> str:
    lowered = identity.lower()
    if not pattern.fullmatch(lowered):
        digits = 32 if pattern is _TRACE_ID else 16
        raise ValueError(f"{identity[:80]!r} is not an id of {digits} hexadecimal digits")
    return lowered


def link(trace_id: str, span_id: str, attributes: Mapping[str, Any] | None = None) -> Link | None:
    """Return a link to a span; None without a span id."""
    if not span_id:
        return None
    return Link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True), dict(attributes or {}))
