"""`OpenStep`, the handle of an open step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from typing_extensions import Unpack

from mttp.codec import calls, content, rewards, steps, tokens
from mttp.codec.documents import sealed
from mttp.codec.fields import checked_value, flag
from mttp.codec.pending import TOKENS
from mttp.codec.plain import Faults, text
from mttp.model.episodes import Reward, Tokens
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet, quiet_but
from mttp.recording.arguments import (
    SCORING_FACTS,
    TOKEN_FACTS,
    RewardValue,
    ScoringFacts,
    TokenFacts,
    check_names,
)
from mttp.recording.handle import (
    SPAN_KEY,
    STEP_KEY,
    TRAJECTORY_KEY,
    ScoredHandle,
    current,
    document_of,
    settled,
)
from mttp.recording.open_call import OpenCall, no_call
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mttp.recording.run_recorder import RunRecorder
    from mttp.recording.trajectory import Trajectory

__all__ = ["OpenStep"]


class OpenStep(ScoredHandle):
    """
    An open step.

    One of another process can be scored here, and can have calls.
    """

    _ACCEPTED = frozenset({"reward", "a call", "end"})
    _reward: float | None = None
    _invalid = False
    _flags: Mapping[str, bool] = MappingProxyType({})
    _calls: Sequence[OpenCall] = ()

    def __init__(
        self, owner: Trajectory, host: RunRecorder | None, span: RecordingSpan | None, index: int = 0
    ) -> None:
        self._owner = owner
        self._host = host
        self._span = span
        self._attached = None
        self._index = index

    def _as_context(self) -> Context:
        outer, owner = current(), self._owner
        # OpenTelemetry only reads it; a copy of its own type would double the cost.
        if outer is owner._block_context:
            context: Any = outer.copy()
        else:
            context = settled(outer).copy()
            self._remember_outer(context.get(STEP_KEY))
            context[TRAJECTORY_KEY] = owner
        context[SPAN_KEY], context[STEP_KEY] = self._span, self
        return context  # type: ignore[no-any-return]

    @property
    def _place(self) -> dict[str, Any]:
        """The attributes that assign its scorings and calls to the step."""
        return {a.STEP_INDEX: self._index, **self._owner._place}

    @property
    def index(self) -> int:
        """The index in the episode, or among the agent's steps, from 0."""
        return self._index

    @quiet
    def observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """
        Record what the policy sees: an array of any library, text, plain data or chat messages.

        Of a value of more than `max_bytes` only dtype and shape are kept.
        """
        if self._accepts("observation"):
            self._content(content.OBSERVATION, value, max_bytes)

    @quiet
    def action(self, value: object, *, max_bytes: int | None = None) -> None:
        """
        Record what the policy does: an array of any library, text, plain data or a chat message.

        Of a value of more than `max_bytes` only dtype and shape are kept.
        """
        if self._accepts("action"):
            self._content(content.ACTION, value, max_bytes)

    def _content(self, keys: content.ContentKeys, value: Any, max_bytes: int | None) -> None:
        span = cast(RecordingSpan, self._span)
        if span.has(keys.value):
            span.forget(frozenset(keys))
        kind = type(value) if max_bytes is None else None
        if kind is str and not value.startswith("data:"):  # else perhaps a picture
            span.encoded[keys.value] = value if value.isascii() else span.checked(text, value)
            return
        document = sealed(value) if kind is list or kind is dict else None
        if document is not None:
            span.set_pending(keys.value, document)
            return
        self._keep_content(keys, value, max_bytes)

    def _set_frame(self, frame: str) -> None:
        """Record the picture of a data URL; its digest if the episode has it already or it is too large."""
        span = cast(RecordingSpan, self._span)
        span.encoded[a.STEP_FRAME] = span.bounded(a.STEP_FRAME, frame)

    @quiet
    def tokens(
        self,
        ids: ArrayLike | None = None,
        *,
        logprobs: ArrayLike | None = None,
        **facts: Unpack[TokenFacts],
    ) -> None:
        """
        Record the step's token block: ids and log probabilities (nats) of the completion, and `TokenFacts`.

        Arrays are one-dimensional: lists of Python numbers, or arrays of any array library.
        """
        if facts:
            check_names("tokens", facts, TOKEN_FACTS | {"logprobs"})
        if not self._accepts("tokens"):
            return
        span = cast(RecordingSpan, self._span)
        if a.TOKEN_ENCODING in span.encoded or span.has(TOKENS):
            span.fault("tokens_replaced", "a step has one token block")
            span.forget(tokens.KEYS)
        block = tokens.snapshot(ids, logprobs, facts)
        if block is not None:
            span.set_pending(TOKENS, block)
        else:
            self._set_tokens(span.checked(tokens.make, {"ids": ids, "logprobs": logprobs, **facts}))

    def _set_tokens(self, block: Tokens) -> None:
        span = cast(RecordingSpan, self._span)
        span.forget(tokens.KEYS)
        span.encoded.update(span.checked(tokens.encode, span.checked(checked_value, block)))

    @quiet
    def reward(self, value: RewardValue = rewards.COMPUTED, **scoring: Unpack[ScoringFacts]) -> None:
        """
        Record the step's reward; a value that is not a finite number has the status error, and is never zero.

        The other arguments, `ScoringFacts`, are those of `OpenEpisode.reward`; without `value` the reward is
        the weighted sum of the components.
        """
        check_names("reward", scoring, SCORING_FACTS)
        if not self._accepts("reward"):
            return
        span = cast(RecordingSpan, self._span)
        is_number = type(value) is float  # the usual case
        is_whole = value is rewards.COMPUTED or not (is_number or rewards.stated(value) is None)
        if scoring or is_whole or self._is_remote:
            faults: Faults = []
            reward = self._as_latest(rewards.make(value, faults, **scoring))
            self._score(reward, faults, "" if is_number else document_of(value))
            return
        number, status, raw = rewards.assess(value)
        if status == "error":
            span.fault("reward_invalid", str(raw))
        self._set_reward(number, status, raw)

    @quiet
    def _reward_of(self, value: object, components: Mapping[str, float], *, at: int) -> None:
        """Record the reward with its components as the step's attributes, else as a scoring at that time."""
        scores = None if self._scoring or self.ended else self._owner._scores(value, components)
        if scores is None:
            self.reward(cast(Any, value), components=components, start_time=at, end_time=at)
        else:
            self._set_reward(*rewards.assess(value))
            cast(RecordingSpan, self._span).encoded.update(scores)

    def _score(self, reward: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring of the step, whose value is the step's reward."""
        self._set_reward(reward.value, reward.status, reward.raw)
        self._record_scoring(reward, faults, document)

    def _record_scoring(self, reward: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring, unless it was recorded when a reward spec computed it."""
        if not reward.span_id or reward.span_id != self._scoring:
            span = cast(RecordingSpan, self._span)
            scoring = self._owner._segment.score(span, self._span_context, reward, faults, place=self._place)
            self._remember_scoring(scoring, reward, document)

    def _set_reward(self, value: float | None, status: str, raw: str | None) -> None:
        if self._is_remote:
            return
        span = cast(RecordingSpan, self._span)
        if a.STEP_REWARD_STATUS in span.encoded:
            span.forget(steps.REWARD_KEYS)
        span.encoded.update(steps.reward(value, status, raw))
        self._reward = value
        self._invalid = status == "error" or (value is not None and status != "ok")

    @quiet
    def record(
        self,
        *,
        trained_reward: float | None = None,
        value_estimate: float | None = None,
        return_target: float | None = None,
        advantage: float | None = None,
        logprob: float | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> None:
        """
        Record numbers and flags that the trainer computes for this step.

        `trained_reward` is the reward that the trainer uses instead of the environment's.
        `value_estimate` is the critic's value of the observation, and `return_target` its training target.
        `logprob` is the log probability (nats) of the action.
        `terminated` and `truncated` state whether the episode ended with this step.
        """
        if not self._accepts("record"):
            return
        span = cast(RecordingSpan, self._span)
        faults: Faults = []
        end_flags = {"terminated": terminated, "truncated": truncated}
        flags = {name: flag(name, value, faults) for name, value in end_flags.items()}
        self._flags = {**self._flags, **{name: value for name, value in flags.items() if value is not None}}
        span.encoded.update(
            steps.facts(
                faults,
                trained_reward=trained_reward,
                value_estimate=value_estimate,
                return_target=return_target,
                advantage=advantage,
                logprob=logprob,
                **flags,
            )
        )
        if faults:
            span.note(faults)

    @quiet_but(no_call)
    def model_call(
        self,
        model: str | None = None,
        *,
        messages: Iterable[object] | None = None,
        operation: str = "chat",
        provider: str | None = None,
        **parameters: Any,
    ) -> OpenCall:
        """
        Start a call of a language model.

        `messages` are those of the request, all of them: those that the episode has not recorded yet are the
        step's observation, and the call's `result`, a message, is its action, unless the step has its own.
        `parameters` are sampling parameters: temperature, top_p, top_k, max_tokens, seed.
        """
        opened = self._open_call(operation, name=model, provider=provider, parameters=parameters)
        if messages is not None and opened._span is not None:
            opened._ask(self._owner._conversation, messages)
        return opened

    @quiet_but(no_call)
    def tool_call(self, name: str, *, arguments: object = None, id: str | None = None) -> OpenCall:
        """Start a call of a tool, with its arguments as data or JSON text, and the id that the model gave."""
        return self._open_call(calls.EXECUTE_TOOL, name=name, arguments=arguments, id=id)

    def _open_call(self, operation: object, **arguments: Any) -> OpenCall:
        if not self._accepts("a call"):
            return no_call()
        opened = OpenCall._open(self._host, self._call_span, operation, arguments)
        self._calls = [*self._calls, opened]
        return opened

    def _call_span(self, name: str, *, kind: SpanKind, start_time: int | None) -> RecordingSpan:
        """Start the span of a call."""
        return self._owner._segment.span(name, self._span_context, kind, start_time, place=self._place)

    @quiet
    def end(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the step; `end_time` is in nanoseconds since the Unix epoch, by default now."""
        if self._accepts("end"):
            flags = {"terminated": terminated, "truncated": truncated}
            if not self._is_refused(flags) and (terminated is not None or truncated is not None):
                self.record(**flags)
            self._finish(end_time=end_time)

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        span: RecordingSpan = self._span  # type: ignore[assignment]  # an inert step is never finished
        if self._calls:
            ended = end_time if self._is_remote else None
            self._end_children((call for call in self._calls if not call.ended), end_time=ended)
        if self._is_remote:
            self._has_left = True
            return
        if error_type is not None:
            span.fail(error_type, error_message)
        if self._owner._step_ended(self) and span._end_time is None:  # the program may have ended the span
            if self._attached is not None:
                self._move_out()
            span.conclude(end_time)

    def _conclude(self, end_time: int | None) -> None:
        """End the step that an error has left open."""
        if not self._is_remote and self._owner._step_ended(self):
            super()._conclude(end_time)
