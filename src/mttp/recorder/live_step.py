"""A step of this process: it is its own span, since there are many, and the training loop pays for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext
from typing_extensions import Self

from mttp import clock
from mttp.codec import rewards, steps, tokens
from mttp.codec.deferred import TOKENS, Deferred
from mttp.guarding import quiet
from mttp.livespan import SPAN_BYTES, VALUE_BYTES, LiveSpan
from mttp.recorder.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY, Host, attach, current, detach, restore
from mttp.recorder.light_span import LightSpan
from mttp.recorder.open_step import OpenStep, Owner
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["LiveStep", "begin"]

_new = object.__new__
_ndarray = np.ndarray
_IDS, _LOGPROBS = map(np.dtype, tokens.USUAL)
_STEP_BYTES = SPAN_BYTES + 6 * VALUE_BYTES


class LiveStep(OpenStep, LightSpan):
    """
    A step and its span in one.

    What nearly every step says is taken here without a detour; the rest as by any other handle.
    """

    _ids: bytes = b""
    _logprobs: bytes = b""
    _name = names.STEP
    is_last = False
    of_episode = True

    _block: Any
    _kinds: tokens.Pair | None

    @property
    def _span(self) -> LiveSpan:  # type: ignore[override]  # other handles are given theirs
        return self

    @property
    def _parent(self) -> SpanContext:  # type: ignore[override]  # likewise
        return self._owner.at

    @property
    def _host(self) -> Host | None:  # type: ignore[override]  # likewise
        return self._owner.host

    @property
    def block(self) -> tokens.Block | None:
        """A token block as it was handed over; most are kept in parts, which are nothing to collect."""
        kinds = self._kinds
        if kinds is None or kinds is tokens.WHOLE:
            return kinds and self._block
        return tokens.paired(kinds, self._ids, self._logprobs)

    @block.setter
    def block(self, block: tokens.Block | None) -> None:
        self._block, self._kinds = block, None if block is None else tokens.WHOLE

    def _above(self) -> Span:
        span = getattr(self._owner, "span", INVALID_SPAN)
        return span if span.get_span_context() == self._owner.at else super()._above()

    def _say(self) -> dict[str, Any]:
        return steps.plain(self._owner.base, self._index, self._reward)

    def own(self) -> Mapping[str, Any] | None:
        """What the owner's steps all say, where it says no more than that, its index and its reward."""
        return self._owner.base if self._scalars is None else None

    def facts(self) -> tuple[Mapping[str, Any], Deferred | None]:
        """Its attributes; nearly all say no more than whose step it is, its index and its reward."""
        block = self.block  # in this order: another transport may look meanwhile
        deferred = None if block is None else (TOKENS, (block,))
        scalars = self._scalars
        return self._say() if scalars is None else dict(scalars), deferred

    def __enter__(self) -> Self:
        try:
            around, owner = current(), self._owner
            # OpenTelemetry only reads it: a copy of its own type would cost as much again.
            inside: Any = around.copy()
            if around is not owner.inside:
                self._enclose(around.get(STEP_KEY))
                inside[TRAJECTORY_KEY] = owner
            inside[SPAN_KEY] = inside[STEP_KEY] = self
            self._attached = (attach(inside), self._attached)
        except Exception as error:
            self._failed("LiveStep.__enter__", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            attached = self._attached
            if error is not None or attached is None or not self._is_light:
                super().__exit__(kind, error, trace)
                return
            token, self._attached = attached
            try:
                restore(token)
            except (ValueError, RuntimeError):
                detach(token)  # which knows why
            owner, segment = self._owner, self._segment
            try:  # what `_finish` does, of a step about which there is nothing unusual
                owner.open_steps.remove(self)
            except KeyError:  # it has ended within its block
                return
            if self._reward is not None:
                owner.step_rewards.append(self._reward)
            self._is_light = False  # from here on it takes nothing
            self._end_time = segment.offset + clock.monotonic()
            if self._scalars is None:
                size, self.is_plain = _STEP_BYTES, True
            else:
                size, self.is_plain = self._weigh(), not self.has_content
            kinds = self._kinds
            if kinds is None:
                self.size = size
            elif kinds is tokens.WHOLE:
                block = self._block  # None where another thread looks at the step just now
                self.size = size if block is None else size + block[2]
            else:
                self.size = size + len(self._ids) + len(self._logprobs)
            if kinds is not None and not owner.in_spans:
                owner.has_tokens()  # most have, and a first look at the block would be a detour
            if owner.in_spans:
                segment.spans += 1
                take = segment.host.take  # a name first, as in `begin`
                take(self)
            else:
                owner.hand_on(self)
        except Exception as failure:
            self._failed("LiveStep.__exit__", failure)

    def _hand_on(self) -> None:
        self._owner.hand_on(self)

    def reward(self, value: object = rewards.COMPUTED, **scoring: Any) -> None:
        """As by any step."""
        try:
            if (
                type(value) is float
                and self._is_light
                and self._reward is None
                and not scoring
                and value - value == 0.0  # it is finite
            ):
                self._reward = value
                if self._scalars is not None:
                    self._scalars |= {a.STEP_REWARD: value, a.STEP_REWARD_STATUS: "ok"}
            elif type(value) is np.float64 and self._is_light:
                self.reward(value.item(), **scoring)
            else:
                self._take_reward(value, scoring)
        except Exception as error:
            self._failed("LiveStep.reward", error)

    def tokens(self, ids: Any = None, *, logprobs: Any = None, **facts: Any) -> None:
        """As by any step; arrays of the usual kind are only copied now."""
        try:
            if self._kinds is None and self._is_light:
                if (  # what `pair` makes of the arrays that most trainers have, without the call
                    type(ids) is _ndarray
                    and type(logprobs) is _ndarray
                    and ids.dtype is _IDS
                    and logprobs.dtype is _LOGPROBS
                    and ids.ndim == 1 == logprobs.ndim
                    and len(ids) == len(logprobs)
                    and not facts
                ):
                    self._ids, self._logprobs, self._kinds = ids.tobytes(), logprobs.tobytes(), tokens.USUAL
                    return
                copied = None if facts else tokens.pair(ids, logprobs)
                if copied is not None:
                    self._kinds, self._ids, self._logprobs = copied
                    return
                block = tokens.snapshot({"ids": ids, "logprobs": logprobs, **facts})
                if block is not None:
                    self.block = block
                    return
            super().tokens(ids, logprobs=logprobs, **facts)
        except Exception as error:
            self._failed("LiveStep.tokens", error)

    @quiet
    def end(
        self,
        end_time: int | None = None,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> None:
        """End the step, in either of its roles; `end_time` in nanoseconds since the Unix epoch."""
        if self._is_light and type(terminated) is bool and type(truncated) is bool:
            self._flags = {**self._flags, "terminated": terminated, "truncated": truncated}
            self.scalars.update({a.STEP_TERMINATED: terminated, a.STEP_TRUNCATED: truncated})
            terminated = truncated = None
        super().end(terminated=terminated, truncated=truncated, end_time=end_time)


def begin(owner: Owner, index: int, start_time: int | None = None) -> LiveStep:
    """Start a step now, or at `start_time`."""
    step = _new(LiveStep)  # and no `__init__`, which Python calls by a detour
    segment = owner.segment
    step._owner = owner
    step._segment = segment
    step._index = index
    next_id = segment.host.stepped  # a name first: Python takes another detour to call what an instance has
    step._span_id = next_id()
    step._scalars = step._reward = step._attached = step._end_time = step._kinds = None
    step.is_plain = False
    if start_time is None and segment.origin.observers is None:
        step._is_light = True
        step._start_time = segment.offset + clock.monotonic()
    else:
        step._is_light = segment.origin.observers is None
        step._start(start_time)
    return step
