"""One process's part of an episode's trace: who makes its spans, and counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from mttp.codec import calls, grades, rewards
from mttp.codec.plain import Faults
from mttp.model.clock import offset
from mttp.model.episodes import Call, Grade, Reward
from mttp.otlp.spans import SAMPLED, SPANS, RecordingSpan, Trace
from mttp.recording.handle import Host
from mttp.recording.open_call import OpenCall, span_kind
from mttp.semconv import attributes as a

__all__ = ["Segment"]

_UNSAMPLED = TraceFlags(TraceFlags.DEFAULT)


class Segment(Trace):
    """
    Makes the spans that one process adds to an episode.

    Those that end are counted, so that a reader can prove that none is missing.
    """

    def __init__(
        self,
        host: Host,
        trace_id: int,
        episode_id: str = "",
        identity: Mapping[str, Any] | None = None,
        *,
        steps: str = SPANS,
        flags: TraceFlags | None = None,
    ) -> None:
        """
        Of an episode whose own id is by default that of its trace; `identity` is what all its spans say.

        `steps` is how its steps are written: spans, packed or auto.
        `flags` are by default what the session's sampling says.
        """
        self.offset = offset()
        self.host = host
        self.origin = host.origin
        self.trace_id = trace_id
        self.steps = steps
        self._flags = flags
        self.spans = 0
        """How many have ended, each step that is in columns one of them."""
        self.group: str | None = None
        """Its group, of which collectors get all episodes or none."""
        self.episode_id = episode_id or f"{trace_id:032x}"
        self.identity = identity or {a.RUN_ID: host.run_id, a.EPISODE_ID: self.episode_id}

    @property
    def flags(self) -> TraceFlags:  # type: ignore[override]  # others are given theirs
        """Whether collectors get the episode."""
        # Not a cached property: before Python 3.12 it has a lock, which a fork may find held.
        if self._flags is None:
            is_sampled = self.host.samples(self.trace_id, self.group)
            self._flags = SAMPLED if is_sampled else _UNSAMPLED
        return self._flags

    def span(
        self,
        name: str,
        parent: SpanContext,
        kind: SpanKind = SpanKind.INTERNAL,
        start_time: int | None = None,
        *,
        place: Mapping[str, Any],
    ) -> RecordingSpan:
        """A new span under `parent`; `place` says whose it is within the episode."""
        return RecordingSpan(name, {**self.identity, **place}, self, parent, start_time=start_time, kind=kind)

    def score(
        self,
        scored: RecordingSpan,
        parent: SpanContext,
        made: Reward,
        faults: Faults,
        *,
        place: Mapping[str, Any],
    ) -> RecordingSpan:
        """
        Record a scoring under `parent`, its grades as children, and what one span should not hold.

        What is wrong with it is said on the span `scored` too.
        """
        span = self.span(rewards.span_name(made), parent, start_time=made.start_time, place=place)
        span.note(faults)
        scored.faults.extend(faults)
        span.encoded.update(span.checked(rewards.encode, made))
        for grade in rewards.grades(made):
            self.grade(grade, span.identity, made, place=place)
        for call in made.calls:
            self.call(call, span.identity, place={**place, a.GRADER_NAME: rewards.grader(made)})
        span.end(made.end_time)
        return span

    def grade(self, grade: Grade, parent: SpanContext, scoring: Reward, *, place: Mapping[str, Any]) -> None:
        """Record a component's grade, its parts and calls below it; times are by default the scoring's."""
        start = scoring.start_time if grade.start_time is None else grade.start_time
        child = self.span(grades.span_name(grade), parent, start_time=start, place=place)
        child.encoded.update(child.checked(grades.encode, grade))
        self.below(grade, child.identity, scoring, place=place)
        child.end(scoring.end_time if grade.end_time is None else grade.end_time)

    def below(self, grade: Grade, parent: SpanContext, scoring: Reward, *, place: Mapping[str, Any]) -> None:
        """Record a grade's parts and calls, below its span."""
        for part in grade.parts:
            self.grade(part, parent, scoring, place=place)
        for call in grade.calls:
            self.call(call, parent, place={**place, a.GRADER_NAME: grades.grader(grade)})

    def call(self, call: Call, parent: SpanContext, *, place: Mapping[str, Any]) -> None:
        """Record a call that is over."""
        name = calls.span_name(call.operation, call.name)
        span = self.span(name, parent, span_kind(call), call.start_time, place=place)
        OpenCall(self.host, span, call)._conclude()

    def ended(self, span: RecordingSpan) -> None:
        """Take an ended span."""
        self.spans += span.count
        self.host.take(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self.host.fault(kind, detail)
