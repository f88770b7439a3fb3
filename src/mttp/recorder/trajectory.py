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
from mttp.codec.plain import Faults, count, flag, scalar_text, unknown_arguments
from mttp.episodes import Call, Reward, Spec
from mttp.guarding import quiet
from mttp.livespan import LiveSpan
from mttp.numbering import given, numbers
from mttp.recorder.block import Block, Taken
from mttp.recorder.handle import (
    SPAN_KEY,
    STEP_KEY,
    TRAJECTORY_KEY,
    Host,
    Measured,
    current,
    document_of,
)
from mttp.recorder.ledger import Ledger
from mttp.recorder.live_step import begin
from mttp.recorder.open_step import OpenStep
from mttp.recorder.packing import AUTO, PACKED, SPANS, Packing, can_be_packed
from mttp.recorder.segment import Segment

__all__ = ["UNSTATED", "Trajectory"]

AUTO_STEPS = 1000
"""Steps of an episode, or of an agent, that are spans before others are packed by themselves."""
UNSTATED: Mapping[str, bool | None] = MappingProxyType({"terminated": None, "truncated": None})
"""What is known of the end before anybody says anything of it."""


class Trajectory(Measured):
    """What opens steps, is scored as a whole, and knows what it was paid."""

    # What few ever have is the class's: episodes are made in the training loop's time, too.
    _at: SpanContext | None = None
    _base: Mapping[str, Any] | None = None
    _packing: Packing | None = None
    _book: Ledger | None = None
    _stated = UNSTATED
    inside: Context | None = None
    """The context in its block, as long as that goes on."""
    place: Mapping[str, Any] = MappingProxyType({})
    """What its spans say of whose they are, besides the episode's identity."""

    def __init__(
        self,
        segment: Segment | None,
        span: LiveSpan | None = None,
        *,
        place: Mapping[str, Any] | None = None,
        steps: str = SPANS,
    ) -> None:
        self._host = None if segment is None else segment.host
        self._span = span
        self._attached = None
        self.segment: Segment = segment  # type: ignore[assignment]  # an inert handle has none, and asks nobody
        self.stated_steps = self._steps_are = steps
        self.in_spans = steps == SPANS
        if place is not None:
            self.place = place
        self._lock = threading.RLock()
        self.open_steps: set[OpenStep] = set()
        self.step_rewards: list[float] = []
        self._indices = None if segment is None else numbers()
        self._following = self._begun = 0
        self._closing = False
        self._block: Block | None = None

    @property
    def episode(self) -> Trajectory:
        """The episode that it is part of."""
        raise NotImplementedError

    @property
    def behind(self) -> object:
        """What is current where this was, once it has ended."""
        return self._outer

    @property
    def host(self) -> Host | None:
        """The session that records; None for an inert handle."""
        return self._host

    @property
    def at(self) -> SpanContext:
        """The span that its steps and scorings are children of."""
        if self._at is None:
            self._at = cast(LiveSpan, self._span).identity
        return self._at

    @property
    def base(self) -> Mapping[str, Any]:
        """What all its steps say of where they belong."""
        if self._base is None:
            self._base = {**self.segment.identity, **self.place}
        return self._base

    def _as_context(self) -> Context:
        around = current()
        self._enclose(around.get(TRAJECTORY_KEY))
        inside: Any = around.copy()
        inside[SPAN_KEY], inside[TRAJECTORY_KEY], inside[STEP_KEY] = self._span, self, None
        self.inside = inside
        return inside  # type: ignore[no-any-return]  # OpenTelemetry only reads it

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inside = None  # which holds the episode, and episodes are not to wait for the garbage collector
        super().__exit__(kind, error, trace)

    # Its steps are counted by taking their indices, which needs no lock, as long as each is the next one.

    @property
    def _next_index(self) -> int:
        return self._following if self._indices is None else given(self._indices)

    @property
    def _steps(self) -> int:
        return self._begun if self._indices is None else given(self._indices)

    def _count_one_by_one(self) -> None:
        """Have steps counted under the lock, which is held now, from here on."""
        indices, self._indices = self._indices, None
        if indices is not None:
            self._following = self._begun = given(indices)

    def _start_at(self, index: int) -> None:
        """Begin with that step: the ones before are another process's."""
        self._indices, self._following = None, index

    def _close(self) -> None:
        """Take no more steps; the lock is held."""
        self._closing = True
        self._count_one_by_one()

    @property
    def _ledger(self) -> Ledger:
        """What was paid so far."""
        with self._lock:
            if self._book is None:
                self._book = Ledger(self.step_rewards)
            return self._book

    # What is known so far.

    def _entered(self) -> Self:
        """Itself, once the transitions that gather are entered."""
        if self._block is not None:
            self.write()
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
    def is_valid(self) -> bool:
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
        indices, span = self._indices, self._span
        try:
            if indices is None or index is not None or span._end_time is not None:  # type: ignore[union-attr]
                return self._looked_at(start_time, index) or OpenStep(self, self._host, None)
            step = begin(self, next(indices), start_time)
            self.open_steps.add(step)
            if self._closing and step in self.open_steps:  # another thread closed it just now
                step._finish()
            return step
        except Exception as error:
            self._failed("step", error)
        return OpenStep(self, self._host, None)

    def _looked_at(self, start_time: int | None, index: int | None) -> OpenStep | None:
        """The next step where more has to be looked at; None where there is to be none."""
        if not self._takes("step"):
            return None
        if self._block is not None:
            self.write()
        asked = count(index)
        with self._lock:
            if self._closing:
                return None
            self._count_one_by_one()
            position = self._following if asked is None else asked
            self._following = max(self._following, position + 1)
            self._begun += 1
            step = begin(self, position, start_time)
            self.open_steps.add(step)
        if asked is None and index is not None:
            step.fault("index_invalid", f"{scalar_text(index):.80}; the step is number {position}")
        return step

    @quiet
    def reward(
        self,
        value: object = rewards.COMPUTED,
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
        **unknown: object,
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
        cast(LiveSpan, self._span).note(unknown_arguments("reward", unknown))
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
        self._score(self.latest(made), faults, document_of(value))

    def _score(self, made: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring of the whole, unless that was done when a spec scored it, and pay it."""
        if not made.span_id or made.span_id != self._scoring:
            span = cast(LiveSpan, self._span)
            self.scored_by(self.segment.score(span, self.at, made, faults, place=self.place), document)
        self._ledger.total(made)
        self._show(made)

    def _show(self, made: Reward) -> None:
        """Have the total's scalars on the whole's own span too, where samplers and trace queries look."""
        span = cast(LiveSpan, self._span)
        span.forget(rewards.KEYS)
        span.values |= {key: value for key, value in rewards.encode(made, []).items() if key in rewards.KEYS}

    def step_ended(self, step: OpenStep) -> bool:
        """Enter what a step paid, and what it said of the end; False where another thread does, or did."""
        try:
            self.open_steps.remove(step)
        except KeyError:
            return False
        if step._reward is not None:
            self.step_rewards.append(step._reward)
            if step._invalid:
                self._ledger.doubt()
        elif step._invalid:
            self._ledger.invalid()
        if step._flags:
            with self._lock:
                self._stated = {**self._stated, **step._flags}
        return True

    def hand_on(self, step: LiveSpan) -> None:
        """Have a step that has ended written, as a span of its own or with others."""
        if step.block is not None:
            self.has_tokens()
        if self.in_spans or not self._gathers(step):
            self.segment.ended(step)

    def has_tokens(self) -> None:
        """Take note of a token block: unless told how to write steps, each is a span from here on."""
        if self._steps_are == AUTO:
            self.in_spans = True

    def _gathers(self, step: LiveSpan) -> bool:
        can_be = can_be_packed(step)
        if self._steps_are != AUTO:
            return can_be and self.packs and self.packing().takes(step)
        if not can_be:
            self.in_spans = True
        elif self._steps >= AUTO_STEPS:
            self._steps_are = PACKED  # from the next one on
        return False

    @property
    def packs(self) -> bool:
        """Whether the next step is packed with others, if it can be."""
        return self._steps_are == PACKED and self.segment.origin.observers is None

    def packing(self) -> Packing:
        """Where steps gather that are packed."""
        with self._lock:
            if self._packing is None:
                self._packing = Packing(self, self.segment)
            return self._packing

    def gather(self, block: Block) -> None:
        """
        Write what gathers in that block from here on.

        Who adds the first of some transitions calls `gathers`, and of many `write`.
        """
        with self._lock:
            self._count_one_by_one()
        self._block = block
        self.packing().gather(block)

    def gathers(self) -> None:
        """Have what gathers written within the session's interval."""
        self.segment.host.gathers(self.packing())

    def write(self) -> None:
        """Hand on what has gathered so far."""
        self.packing().write()

    def took(self, taken: Taken) -> int:
        """Enter transitions that are about to be written; the index of the first."""
        segment = self.segment
        with self._lock:
            self._count_one_by_one()
            first = self._following
            self._following += len(taken)
            self._begun += len(taken)
            paid, invalid = taken.paid()
            self._ledger.steps(paid, invalid=invalid)
            self._stated = {**self._stated, **taken.flags}
        segment.host.packed(len(taken))
        return first

    def _settle(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the steps that are still open, and enter what is said of the end."""
        for step in sorted(self.open_steps, key=lambda step: step.index) if self.open_steps else ():
            step._finish(end_time=end_time)
        if self._packing is not None:
            self._packing.close()
        for name, stated in (("terminated", terminated), ("truncated", truncated)):
            if stated is not None:
                said = cast(LiveSpan, self._span).checked(flag, name, stated)
                self._stated = self._stated if said is None else {**self._stated, name: said}
