"""Records the scorings of reward specs: a span for each, and one for each component."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from mttp.codec import grades, rewards
from mttp.codec.plain import Faults, text
from mttp.model.episodes import Grade, Reward
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import RecordingSpan
from mttp.recording.current import current_step, current_trajectory
from mttp.recording.handle import SPAN_KEY, attach, current, detach
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.model.results import RewardResult

__all__ = ["OpenScoring", "watch"]


def watch(spec: str, *, of_step: bool) -> OpenScoring | None:
    """Start a scoring in the current step or episode; returns None outside an episode."""
    scored = (current_step() if of_step else None) or current_trajectory()
    if not scored:
        return None
    try:
        return OpenScoring(scored, spec)
    except Exception as error:
        raise_interrupt(error)
        scored._failed("scoring", error)
        return None


class OpenScoring:
    """An open scoring; its errors are counted and never reach the code that scores."""

    def __init__(self, scored: OpenStep | Trajectory, spec: str) -> None:
        self._scored = scored
        self._segment = scored._owner._segment if isinstance(scored, OpenStep) else scored._segment
        self._place = scored._place
        self._span = self._open(f"{names.REWARD} {spec}", scored._span_context)
        self._open_grades: dict[str, RecordingSpan] = {}
        self._grades: dict[str, tuple[RecordingSpan, int]] = {}

    def _open(self, name: str, parent: SpanContext) -> RecordingSpan:
        return self._segment.span(text(name, []), parent, place=self._place)

    def grading(self, name: str) -> AbstractContextManager[object]:
        """
        Return a context manager for a component's call, in whose block the component's span is current.

        An included spec has several such blocks, one for each stage of its components.
        """
        try:
            span = self._open_grades.get(name)
            if span is None:
                span = self._open_grades[name] = self._open(f"{names.GRADE} {name}", self._span.identity)
            return _Grading(self, name, span)
        except Exception as error:
            raise_interrupt(error)
            self._fault(error)
            return nullcontext()

    def graded(self, name: str, span: RecordingSpan) -> None:
        """Remember the end time of a component's call."""
        self._grades[name] = (span, self._segment.now())

    def scored(self, result: RewardResult) -> str:
        """Record the result; returns the scoring's span id, 16 hex digits, empty after an error."""
        try:
            return self._record(result)
        except Exception as error:
            raise_interrupt(error)
            self._fault(error)
            return ""

    def _record(self, result: RewardResult) -> str:
        faults: Faults = []
        reward = rewards.checked(result.reward, faults)
        span = self._span
        span.note(faults)
        span.encoded.update(span.checked(rewards.encode, reward))
        for grade in reward.grades:
            self._end_grade(grade, reward)
        span.end()
        self._scored._remember_scoring(span, reward, result.document)
        return f"{span.identity.span_id:016x}"

    def _end_grade(self, grade: Grade, reward: Reward) -> None:
        """Record a grade on the span of its call, or on a new span if it had no block."""
        called = self._grades.get(grade.name)
        if called is None:
            self._segment.grade(grade, self._span.identity, reward, place=self._place)
            return
        span, ended = called
        grade = span.checked(grades.checked, grade)
        span.encoded.update(span.checked(grades.encode, grade))
        self._segment.grade_children(grade, span.identity, reward, place=self._place)
        span.end(ended)

    def _fault(self, error: Exception) -> None:
        self._scored._failed("scoring", error)


class _Grading:
    """A context manager in whose block a component's span is current."""

    def __init__(self, scoring: OpenScoring, name: str, span: RecordingSpan) -> None:
        self._scoring = scoring
        self._name = name
        self._span = span

    def __enter__(self) -> None:
        self._token = attach(Context({**current(), SPAN_KEY: self._span}))

    def __exit__(self, *_: Any) -> None:
        detach(self._token)
        self._scoring.graded(self._name, self._span)
