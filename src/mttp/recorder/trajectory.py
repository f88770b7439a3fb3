"""Steps in order and what is paid for them: an episode's, or those of one agent in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from typing_extensions import Self

from mttp.codec import rewards
from mttp.codec.blocks import Column
from mttp.codec.plain import Faults, flag
from mttp.episodes import Reward, Spec
from mttp.livespan import LiveSpan
from mttp.recorder.block import Block, Taken
from mttp.recorder.handle import (
    SPAN_KEY,
    STEP_KEY,
    TRAJECTORY_KEY,
    Host,
    Measured,
    current,
    document_of,
    quiet,
)
from mttp.recorder.ledger import Ledger
from mttp.recorder.live_step import LiveStep
from mttp.recorder.open_step import OpenStep
from mttp.recorder.packing import SPANS, Packing
from mttp.recorder.segment import Segment

__all__ = ["Trajectory"]


class Trajectory(Measured):
    """What opens steps, is scored as a whole, and knows what it was paid."""

    def __init__(
        self,
        segment: Segment | None,
        span: LiveSpan | None = None,
        *,
        place: Mapping[str, Any] | None = None,
        steps: str = SPANS,
    ) -> None:
        super().__init__(None if segment is None else segment.host, span)
        self._segment = segment
        self._at: SpanContext | None = None
        self.place = place or {}
        self._base = {**segment.identity, **self.place} if segment is not None else {}
        self._packing = Packing(self, segment, steps)
        self._block: Block | None = None
        self._lock = threading.RLock()
        self._open_steps: dict[int, OpenStep] = {}
        self._stated: dict[str, bool | None] = {"terminated": None, "truncated": None}
        self._ledger = Ledger()
        self._paid = self._ledger.step
        self._steps = 0
        self._next_index = 0
        self._closing = False

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
    def segment(self) -> Segment:
        """Who makes its spans."""
        return cast(Segment, self._segment)

    @property
    def at(self) -> SpanContext:
        """The span that its steps and scorings are children of."""
        if self._at is None:
            self._at = cast(LiveSpan, self._span).identity
        return self._at

    def _as_context(self) -> Context:
        around = current()
        self._enclose(around.get(TRAJECTORY_KEY))
        return Context({**around, SPAN_KEY: self._span, TRAJECTORY_KEY: self, STEP_KEY: None})

    # What is known so far.

    def _entered(self) -> Self:
        """Itself, once the transitions that gather are entered."""
        if self._block is not None:
            self._packing.write()
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
        `index` is by default one after the last.
        """
        span = self._span
        if span is None:
            return OpenStep(self, None, None)
        try:
            if index is None and start_time is None and span._end_time is None and not self._closing:
                return self._next_step()
            if self._takes("step"):
                return self._open_step(start_time, index)
        except Exception as error:
            self._fault("internal_error", f"step: {error!r}")
        return OpenStep(self, self._host, None)

    def _next_step(self) -> OpenStep:
        """The next step, now: what nearly all of them are, for the least."""
        if self._block is not None:
            self._packing.write()
        segment: Segment = self._segment  # type: ignore[assignment]  # there is one where there is a span
        at, lock = self._at or self.at, self._lock
        lock.acquire()  # in half the time that `with` takes
        try:
            index = self._next_index
            self._next_index = index + 1
            self._steps += 1
            step = LiveStep(self, segment, at, self._base, index, self._packing.sink)
            self._open_steps[id(step)] = step
        finally:
            lock.release()
        next(segment.stepped)
        return step

    def _open_step(self, start_time: int | None, index: int | None) -> OpenStep:
        segment = self._entered().segment
        with self._lock:
            if self._closing:
                return OpenStep(self, self._host, None)
            position = self._next_index if index is None else int(index)
            self._next_index = max(self._next_index, position + 1)
            self._steps += 1
            step = LiveStep(self, segment, self.at, self._base, position, self._packing.sink, start_time)
            self._open_steps[id(step)] = step
        next(segment.stepped)
        return step

    @quiet
    def reward(
        self,
        value: object,
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
        **unknown: object,
    ) -> None:
        """
        State what the whole is paid, and what that was made of.

        `value` is a number; None means that none is known (status missing, or what `status` says).
        Whatever is not a finite number is an error, kept as text, and never a zero.
        The result of a reward spec, or an `mttp.Reward`, is the whole scoring.
        A value that differs from its components' weighted sum is recorded as given, and flagged.
        """
        if not self._takes("reward"):
            return
        for name in unknown:
            cast(LiveSpan, self._span).fault("argument_unknown", f"reward has no {name}")
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

    def step_ended(self, step: OpenStep) -> None:
        """Enter what an ended step paid, and what it said of the end."""
        if self._open_steps.pop(id(step), None) is None:  # entered already: two threads end it at once
            return
        if step._reward is not None:
            self._paid(step._reward)
        elif step._invalid:
            self._ledger.invalid()
        if step._flags:
            with self._lock:
                self._stated |= step._flags

    @property
    def packs(self) -> bool:
        """Whether the next step is packed with others, if it can be."""
        return self._packing.packs

    def gather(self, columns: Callable[..., Mapping[str, Column]], start_time: int) -> Block:
        """
        Where an environment's transitions gather from here on, for the least there is to do for each.

        The first began at `start_time`. Who adds the first of some calls `gathers`, and of many `write`.
        """
        self._block = self._packing.block(columns, start_time)
        return self._block

    def gathers(self) -> None:
        """Have what gathers written within the session's interval."""
        self.segment.host.gathers(self._packing)

    def write(self) -> None:
        """Hand on what has gathered so far."""
        self._packing.write()

    def took(self, taken: Taken) -> int:
        """Enter transitions that are about to be written; the index of the first."""
        segment = self.segment
        with self._lock:
            first = self._next_index
            self._next_index += taken.length
            self._steps += taken.length
            self._ledger.steps(taken.paid, invalid=taken.invalid)
            self._stated |= taken.flags
        segment.host.packed(taken.length)
        for fault in taken.faults:
            kind, _, detail = fault.partition(": ")
            segment.fault(kind, detail)
        return first

    def _settle(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the steps that are still open, and enter what is said of the end."""
        for step in list(self._open_steps.values()):
            step._finish(end_time=end_time)
        self._packing.close()
        for name, given in (("terminated", terminated), ("truncated", truncated)):
            if given is not None:
                said = cast(LiveSpan, self._span).checked(flag, name, given)
                self._stated |= {} if said is None else {name: said}
