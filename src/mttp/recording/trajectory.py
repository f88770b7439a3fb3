"""Steps in order and what is paid for them: an episode's, or those of one agent in it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from typing_extensions import Self

from mttp.codec import rewards
from mttp.codec.plain import Faults, count, flag, scalar_text
from mttp.codec.transitions import RowSchema
from mttp.model.episodes import Call, Reward, Spec
from mttp.otlp.spans import SPANS, RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording.arguments import RewardValue
from mttp.recording.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY, Measured, current, document_of
from mttp.recording.ledger import EpisodeRewards
from mttp.recording.open_step import OpenStep
from mttp.recording.segment import Segment
from mttp.recording.step_buffer import StepBuffer
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["UNSTATED", "Trajectory"]

UNSTATED: Mapping[str, bool | None] = MappingProxyType({"terminated": None, "truncated": None})
"""What is known of the end before anybody says anything of it."""


class Trajectory(Measured):
    """What opens steps, is scored as a whole, and knows what it was paid."""

    # What few ever have is the class's: episodes are made in the training loop's time, too.
    _own_context: SpanContext | None = None
    _base: dict[str, Any] | None = None
    _step_buffer: StepBuffer | None = None
    _book: EpisodeRewards | None = None
    _stated = UNSTATED
    _inside: Context | None = None
    """The context in its block, as long as that goes on."""
    _place: Mapping[str, Any] = MappingProxyType({})
    """What its spans say of whose they are, besides the episode's identity."""

    def __init__(
        self,
        segment: Segment | None,
        span: RecordingSpan | None = None,
        *,
        place: Mapping[str, Any] | None = None,
    ) -> None:
        self._host = None if segment is None else segment.host
        self._span = span
        self._attached = None
        self._segment: Segment = segment  # type: ignore[assignment]  # an inert handle has none
        if place is not None:
            self._place = place
        self._lock = threading.RLock()
        self._open_steps: set[OpenStep] = set()
        self._step_rewards: list[float] = []
        self._next_index = self._steps = 0
        self._closing = False

    @property
    def _episode(self) -> Trajectory:
        """The episode that it is part of; itself for an episode."""
        raise NotImplementedError

    @property
    def _behind(self) -> object:
        """What is current where this was, once it has ended."""
        return self._outer

    @property
    def _span_context(self) -> SpanContext:
        """The span that its steps and scorings are children of."""
        if self._own_context is None:
            self._own_context = cast(RecordingSpan, self._span).identity
        return self._own_context

    def _as_context(self) -> Context:
        around = current()
        self._enclose(around.get(TRAJECTORY_KEY))
        inside: Any = around.copy()
        inside[SPAN_KEY], inside[TRAJECTORY_KEY], inside[STEP_KEY] = self._span, self, None
        self._inside = inside
        return inside  # type: ignore[no-any-return]  # OpenTelemetry only reads it

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = None  # which holds the episode, and episodes are not to wait for the garbage collector
        super().__exit__(kind, error, trace)

    def _close(self) -> None:
        """Take no more steps; the lock is held."""
        self._closing = True

    @property
    def _ledger(self) -> EpisodeRewards:
        """What was paid so far."""
        with self._lock:
            if self._book is None:
                self._book = EpisodeRewards(self._step_rewards)
            return self._book

    # What is known so far.

    def _entered(self) -> Self:
        """Itself, after entering buffered steps and steps whose spans have ended."""
        for step in tuple(self._open_steps):
            if step.ended:
                step._finish()
        if self._step_buffer is not None:
            self._step_buffer.write()
        return self

    @property
    def terminated(self) -> bool | None:
        """Whether the task itself ended."""
        return self._entered()._stated["terminated"]

    @property
    def truncated(self) -> bool | None:
        """Whether a limit cut it off."""
        return self._entered()._stated["truncated"]

    @property
    def length(self) -> int:
        """Steps so far."""
        return self._entered()._next_index

    @property
    def step_reward_sum(self) -> float | None:
        """Sum of the step rewards that are numbers; None when no ended step states one."""
        return self._entered()._ledger.step_sum

    @property
    def _is_valid(self) -> bool:
        """Whether what was paid so far is what was scored, and not for instance a floor in place of it."""
        return self._entered()._ledger.is_valid

    @property
    def return_basis(self) -> str | None:
        """episode where a total was stated, steps where rewards were, None where nothing was."""
        return self._entered()._ledger.basis

    @property
    def return_(self) -> float | None:
        """What was paid in all so far; None where that is not known."""
        return self._entered()._ledger.paid

    # What a training loop says.

    def step(self, *, start_time: int | None = None, index: int | None = None) -> OpenStep:
        """
        Start the next step.

        `start_time` is in nanoseconds since the Unix epoch, by default now.
        `index` is by default one after the last, as it is where it is no whole number from 0 to 2**63 - 1.
        """
        try:
            step = self._next(start_time, index) if self._takes("step") else None
            if step is not None:
                self._open_steps.add(step)
                if self._closing and step in self._open_steps:  # another thread closed it just now
                    step._finish()
                return step
        except Exception as error:
            self._failed("step", error)
        return OpenStep(self, self._host, None)

    def _next(self, start_time: int | None, index: int | None) -> OpenStep | None:
        """The next step; None where there is to be none."""
        if self._step_buffer is not None:
            self._step_buffer.write()
        asked = None if index is None else count(index)
        with self._lock:
            if self._closing:
                return None
            position = self._next_index if asked is None else asked
            # Without a call in between, so that a signal's handler sees both or neither.
            self._next_index = position + 1 if position >= self._next_index else self._next_index
            self._steps += 1
        step = self._begin(position, start_time)
        if asked is None and index is not None:
            said = f"{scalar_text(index):.80}; the step is number {position}"
            cast(RecordingSpan, step._span).fault("index_invalid", said)
        return step

    def _begin(self, index: int, start_time: int | None) -> OpenStep:
        segment, base = self._segment, self._base
        if base is None:
            base = self._base = {**segment.identity, **self._place}
        next_id = segment.host.stepped  # a name first: Python takes a detour to call what an instance has
        said = base.copy()
        said[a.STEP_INDEX] = index
        span = RecordingSpan(
            names.STEP,
            said,
            segment,
            self._span_context,
            span_id=next_id(),
            start_time=start_time,
            above=self._span,
        )
        return OpenStep(self, segment.host, span, index)

    @quiet
    def reward(
        self,
        value: RewardValue = rewards.COMPUTED,
        *,
        components: Mapping[str, object] | None = None,
        weights: Mapping[str, object] | None = None,
        status: str | None = None,
        error: object = None,
        spec: Spec | None = None,
        range: tuple[float, float] | None = None,
        verdict: str | None = None,
        failed_checks: Sequence[str] = (),
        grader: str | None = None,
        grader_kind: str | None = None,
        grader_version: str | None = None,
        relative: bool | None = None,
        label: str | None = None,
        explanation: str | None = None,
        calls: Sequence[Call] = (),
    ) -> None:
        """
        State what the whole is paid, and what that was made of.

        `value` is a number; None means that none is known (status missing, or what `status` says).
        A value that is not a finite number is an error, kept as text, and never a zero.
        Without `value` the total is the weighted sum of the components, each with weight 1 where no weights
        are given. It is missing where a component has no valid value, or no weight beside others that have.
        The result of a reward spec, or an `mttp.Reward`, is the whole scoring.
        A value that differs from its components' weighted sum is recorded as given, and flagged.
        """
        if not self._takes("reward"):
            return
        faults: Faults = []
        made = rewards.make(
            value,
            faults,
            components=components,
            weights=weights,
            status=status,
            error=error,
            spec=spec,
            range=range,
            verdict=verdict,
            failed_checks=failed_checks,
            grader=grader,
            grader_kind=grader_kind,
            grader_version=grader_version,
            relative=relative,
            label=label,
            explanation=explanation,
            calls=calls,
        )
        self._score(self._latest(made), faults, document_of(value))

    def _score(self, made: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring of the whole, unless that was done when a spec scored it, and pay it."""
        if not made.span_id or made.span_id != self._scoring:
            span = cast(RecordingSpan, self._span)
            self._scored_by(
                self._segment.score(span, self._span_context, made, faults, place=self._place), document
            )
        self._ledger.total(made)
        self._show(made)

    def _show(self, made: Reward) -> None:
        """Have the total's scalars on the whole's own span too, where samplers and trace queries look."""
        span = cast(RecordingSpan, self._span)
        span.forget(rewards.KEYS)
        shown = rewards.encode(made, [])
        span.encoded.update({key: value for key, value in shown.items() if key in rewards.KEYS})

    def _step_ended(self, step: OpenStep) -> bool:
        """Enter what a step paid, and what it said of the end; False where another thread does, or did."""
        try:
            self._open_steps.remove(step)
        except KeyError:
            return False
        if step._reward is not None:
            self._step_rewards.append(step._reward)
            if step._invalid:
                self._ledger.doubt()
        elif step._invalid:
            self._ledger.invalid()
        if step._flags:
            with self._lock:
                self._stated = {**self._stated, **step._flags}
        return True

    def _open_buffer(self, form: RowSchema, start_time: int) -> StepBuffer | None:
        """
        Where steps without handles gather from here on, of which the first began at `start_time`.

        None where each step is to be a span, or the user's own span processors look on.
        """
        segment = self._segment
        if segment.steps == SPANS or segment.origin.observers is not None:
            return None
        self._entered()
        self._step_buffer = StepBuffer(self, form, start_time)
        return self._step_buffer

    def _add_steps(self, count: int, paid: Sequence[float], invalid: int, flags: Mapping[str, bool]) -> int:
        """Enter steps that had no handles; the index of the first."""
        with self._lock:
            first = self._next_index
            self._next_index += count
            self._steps += count
            self._ledger.steps(paid, invalid=invalid)
            self._stated = {**self._stated, **flags}
        self._segment.host.packed(count)
        return first

    def _settle(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the steps that are still open, and enter what is said of the end."""
        for step in sorted(self._open_steps, key=lambda step: step.index) if self._open_steps else ():
            step._finish(end_time=end_time)
        if self._step_buffer is not None:
            self._step_buffer.close()
        for name, stated in (("terminated", terminated), ("truncated", truncated)):
            if stated is not None:
                is_flag = type(stated) is bool
                said = stated if is_flag else cast(RecordingSpan, self._span).checked(flag, name, stated)
                self._stated = self._stated if said is None else {**self._stated, name: said}
