"""A step of this process: it is its own span, since there are many, and the training loop pays for each."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import TracebackType
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from typing_extensions import Self

from mttp import ids as new_ids
from mttp.codec import steps, tokens
from mttp.codec.plain import nanoseconds
from mttp.livespan import SPAN_BYTES, VALUE_BYTES, LiveSpan, Sink
from mttp.recorder.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY, Host, attach, current, detach
from mttp.recorder.open_step import OpenStep, Owner
from mttp.recorder.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["LiveStep"]

_STEP_BYTES = SPAN_BYTES + 6 * VALUE_BYTES


class LiveStep(OpenStep, LiveSpan):
    """
    A step and its span in one.

    What nearly every step says is taken here without a detour; the rest as by any other handle.
    """

    _name = names.STEP

    def __init__(
        self,
        owner: Owner,
        segment: Segment,
        parent: SpanContext,
        base: Mapping[str, Any],
        index: int,
        sink: Sink,
        start_time: int | None = None,
    ) -> None:
        """Start now, or at `start_time`; all the owner's steps say `base`; `sink` takes it in the end."""
        self._owner = owner
        self._index = index
        self._sink = sink
        self._clock = clock = segment.clock
        self._origin = origin = segment.origin
        self._base = base
        self._scalars: dict[str, Any] | None = None
        self.trace_id = segment.trace_id
        self._span_id = new_ids.span_id()
        self._parent = parent
        # The class has these too; but what every step looks at is found sooner here.
        self._is_open = self._is_light = True
        self._end_time = self._attached = self._reward = self.block = None
        self._paid = False
        given = None if start_time is None else self.checked(nanoseconds, start_time)
        self._start_time = clock.now() if given is None else given
        if origin.observers is not None:
            origin.observers.started(self)

    @property
    def _span(self) -> LiveSpan:  # type: ignore[override]  # other handles are given theirs
        return self

    @property
    def scalars(self) -> dict[str, Any]:
        """Its attributes but for a token block; most steps need none of their own until they are written."""
        if self._scalars is None:
            self._scalars = steps.plain(self._base, self._index, self._reward)
        return self._scalars

    @scalars.setter
    def scalars(self, scalars: dict[str, Any]) -> None:
        self._scalars = scalars

    def own(self) -> tuple[Mapping[str, Any], int, float | None] | None:
        """What the owner's steps say, its index and reward, where it says no more than that."""
        return (self._base, self._index, self._reward) if self._scalars is None else None

    @property
    def _host(self) -> Host | None:  # type: ignore[override]  # likewise
        return self._owner.host

    def __enter__(self) -> Self:
        around = current()
        outer = around.get(STEP_KEY)
        if outer is not None:
            self._enclose(outer)
        inside = {**around, SPAN_KEY: self, TRAJECTORY_KEY: self._owner, STEP_KEY: self}
        self._attached = (attach(Context(inside)), self._attached)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        attached = self._attached
        if error is not None or attached is None or not self._is_light:
            super().__exit__(kind, error, trace)
            return
        self._attached = attached[1]
        detach(attached[0])
        try:
            self._conclude_lightly()
        except Exception as failure:
            self._fault("internal_error", f"step: {failure!r}")

    def _conclude_lightly(self) -> None:
        """What `_finish` does of a step about which there is nothing unusual."""
        try:
            del self._is_open
        except AttributeError:  # it has ended within its block
            return
        sink, self.is_plain, self._is_light = self._sink, True, False  # from here on it takes nothing
        self._end_time = self._clock.now()
        self.size = _STEP_BYTES if self._scalars is None else SPAN_BYTES + VALUE_BYTES * len(self._scalars)
        if self.block is not None:
            self.size += self.block[3]
        self._owner.step_ended(self)
        if self._origin.observers is not None:
            self._origin.observers.ended(self)
        sink.ended(self)

    def reward(self, value: object, **scoring: Any) -> None:
        """As by any step."""
        if type(value) is float and self._is_light and not (scoring or self._paid) and isfinite(value):
            self._paid, self._reward = True, value
            if self._scalars is not None:
                self._scalars |= {a.STEP_REWARD: value, a.STEP_REWARD_STATUS: "ok"}
        else:
            self._take_reward(value, scoring)

    def tokens(self, ids: Any = None, *, logprobs: Any = None, **facts: Any) -> None:
        """As by any step; arrays of the usual kind are only copied now."""
        if self._is_light and self.block is None:
            self.block = tokens.snapshot(ids, logprobs, facts)
            if self.block is not None:
                return
        super().tokens(ids, logprobs=logprobs, **facts)

    def end(
        self,
        end_time: int | None = None,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> None:
        """End the step, in either of its roles; `end_time` in nanoseconds since the Unix epoch."""
        super().end(terminated=terminated, truncated=truncated, end_time=end_time)
