"""`Segment`, one process's part of an episode's trace, which creates and counts its spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from mttp.codec import grades, rewards
from mttp.codec.plain import Faults
from mttp.model.clock import MOMENT, offset
from mttp.model.episodes import Call, Grade, Reward
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import SAMPLED, SPANS, Ended, RecordingSpan, Trace
from mttp.recording.open_call import OpenCall
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["Segment"]

_UNSAMPLED = TraceFlags(TraceFlags.DEFAULT)


class Segment(Trace):
    """
    Creates the spans of one process in an episode's trace.

    It counts the ended spans, so that a reader detects missing ones.
    """

    def __init__(
        self,
        host: RunRecorder,
        trace_id: int,
        episode_id: str = "",
        identity: Mapping[str, Any] | None = None,
        *,
        steps: str = SPANS,
        flags: TraceFlags | None = None,
    ) -> None:
        """
        Create a segment; `episode_id` is by default the trace id.

        `identity` has the attributes of all its spans.
        `steps` is how steps are written: spans, packed or auto.
        `flags` are by default those of the session's sampling decision.
        """
        self.offset = offset()
        self.host = host
        self.origin = host.origin
        self.trace_id = trace_id
        self.steps = steps
        self._flags = flags
        self.spans = 0
        """The number of ended spans, including each step in columns."""
        self.group: str | None = None
        """The group's id; sampling selects all episodes of a group or none."""
        self.episode_id = episode_id or f"{trace_id:032x}"
        self.identity = identity or {a.RUN_ID: host.run_id, a.EPISODE_ID: self.episode_id}

    @property
    def flags(self) -> TraceFlags:  # type: ignore[override]  # an attribute in other traces
        """The trace flags: sampled if collectors get the episode."""
        # Not a cached property, which before Python 3.12 has a lock that a fork can copy in the locked state.
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
        """Start a span under `parent`; `place` has its agent and step attributes."""
        return RecordingSpan(name, {**self.identity, **place}, self, parent, start_time=start_time, kind=kind)

    def score(
        self,
        scored: RecordingSpan,
        parent: SpanContext,
        reward: Reward,
        faults: Faults,
        *,
        place: Mapping[str, Any],
    ) -> RecordingSpan:
        """
        Record a scoring under `parent`, with its grades and calls as children.

        Its faults are also noted on the span `scored`.
        """
        span = self.span(rewards.span_name(reward), parent, start_time=reward.start_time, place=place)
        if faults:
            span.note(faults)
            scored.faults.extend(faults)
        span.encoded.update(span.checked(rewards.encode, reward))
        self.scoring_children(reward, span, place=place)
        span.conclude(reward.end_time)
        return span

    def scoring_children(self, reward: Reward, span: RecordingSpan, *, place: Mapping[str, Any]) -> None:
        """Record a scoring's grades and calls as children of its span."""
        for grade in rewards.grades(reward):
            self._child(span, self.grade, grade, span.identity, reward, place=place)
        for call in reward.calls:
            by = {**place, a.GRADER_NAME: rewards.grader(reward)}
            times = reward.start_time, reward.end_time
            self._child(span, self.call, call, span.identity, *times, place=by)

    def _child(self, span: RecordingSpan, record: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Record a child of a span; an error is a fault of the span, which is recorded without the child."""
        try:
            record(*args, **kwargs)
        except Exception as error:
            raise_interrupt(error)
            span._failed(record.__qualname__, error)

    def grade(self, grade: Grade, parent: SpanContext, scoring: Reward, *, place: Mapping[str, Any]) -> None:
        """Record a component's grade, its parts and calls; times are by default the scoring's."""
        faults: Faults = []
        grade = grades.checked(grade, faults)
        start = scoring.start_time if grade.start_time is None else grade.start_time
        child = self.span(grades.span_name(grade), parent, start_time=start, place=place)
        child.note(faults)
        child.encoded.update(child.checked(grades.encode, grade))
        self.grade_children(grade, child.identity, scoring, place=place)
        end = scoring.end_time if grade.end_time is None else grade.end_time
        if grade.end_time is None and end is not None and end < child.started:
            end = child.started + MOMENT
        child.end(end)

    def grade_children(
        self, grade: Grade, parent: SpanContext, scoring: Reward, *, place: Mapping[str, Any]
    ) -> None:
        """Record a grade's parts and calls as children of its span."""
        for part in grade.parts:
            self.grade(part, parent, scoring, place=place)
        start = scoring.start_time if grade.start_time is None else grade.start_time
        end = scoring.end_time if grade.end_time is None else grade.end_time
        for call in grade.calls:
            self.call(call, parent, start, end, place={**place, a.GRADER_NAME: grades.grader(grade)})

    def call(
        self,
        call: Call,
        parent: SpanContext,
        start_time: int | None,
        end_time: int | None,
        *,
        place: Mapping[str, Any],
    ) -> None:
        """Record a finished call; the times are for one without its own."""
        start_span = partial(self.span, parent=parent, place=place)
        OpenCall._record_finished(self.host, call, start_span, start_time=start_time, end_time=end_time)

    def ended(self, span: Ended) -> None:
        """Count an ended span and pass it to the session."""
        self.spans += span.count
        self.host.take(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self.host.fault(kind, detail)
