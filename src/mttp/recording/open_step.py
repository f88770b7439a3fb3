"""A step while it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind
from typing_extensions import Unpack

from mttp.codec import calls, content, rewards, steps, tokens
from mttp.codec.documents import sealed
from mttp.codec.pending import TOKENS
from mttp.codec.plain import Faults, flag
from mttp.model.episodes import Call, Reward, Tokens
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
from mttp.recording.handle import SPAN_KEY, STEP_KEY, TRAJECTORY_KEY, Host, Measured, current, document_of
from mttp.recording.open_call import OpenCall
from mttp.recording.segment import Segment
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["OpenStep"]


class StepOwner(Protocol):
    """What a step needs of the episode, or of the agent, whose step it is."""

    _host: Host | None
    """The session; None where nothing is recorded."""

    @property
    def _segment(self) -> Segment:
        """Who makes its spans."""

    @property
    def _inside(self) -> Context | None:
        """The context in its block, as long as that goes on."""

    def _step_ended(self, step: OpenStep) -> bool:
        """Enter what a step paid; False where another thread does, or did."""


def _no_call(*_: object, **__: object) -> OpenCall:
    return OpenCall(None, None)


class OpenStep(Measured):
    """A step while it happens."""

    _reward: float | None = None
    _invalid = False
    _flags: Mapping[str, bool] = MappingProxyType({})
    _calls: Sequence[OpenCall] = ()

    def __init__(
        self, owner: StepOwner, host: Host | None, span: RecordingSpan | None, index: int = 0
    ) -> None:
        self._owner = owner
        self._host = host
        self._span = span
        self._attached = None
        self._index = index

    def _as_context(self) -> Context:
        around, owner = current(), self._owner
        # OpenTelemetry only reads it: a copy of its own type would cost as much again.
        inside: Any = around.copy()
        if around is not owner._inside:
            self._enclose(around.get(STEP_KEY))
            inside[TRAJECTORY_KEY] = owner
        inside[SPAN_KEY], inside[STEP_KEY] = self._span, self
        return inside  # type: ignore[no-any-return]

    @property
    def _span_context(self) -> SpanContext:
        """The span that its scorings and calls are children of."""
        return cast(RecordingSpan, self._span).identity

    @property
    def _place(self) -> dict[str, Any]:
        """What its scorings and calls say of where they belong."""
        return steps.place(cast(RecordingSpan, self._span).encoded)

    @property
    def index(self) -> int:
        """Position in the episode, or among the steps of its agent, from 0."""
        return self._index

    @quiet
    def observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """What the policy sees; beyond `max_bytes` only dtype and shape are kept."""
        if self._takes("observation"):
            self._content(content.OBSERVATION, value, max_bytes)

    @quiet
    def action(self, value: object, *, max_bytes: int | None = None) -> None:
        """What the policy does; beyond `max_bytes` only dtype and shape are kept."""
        if self._takes("action"):
            self._content(content.ACTION, value, max_bytes)

    def _content(self, keys: content.ContentKeys, value: object, max_bytes: int | None) -> None:
        span = cast(RecordingSpan, self._span)
        if span.has(keys.value):
            span.forget(frozenset(keys))
        document = sealed(value) if max_bytes is None and type(value) in (list, dict) else None
        if document is not None:
            span.leave(keys.value, document)
            return
        faults: Faults = []
        omissions: list[str] = []
        span.encoded.update(content.encode(keys, value, faults, omissions, max_bytes=max_bytes))
        if omissions:
            span.omissions.extend(omissions)
        if faults:
            span.note(faults)

    @quiet
    def tokens(
        self,
        ids: ArrayLike | None = None,
        *,
        logprobs: ArrayLike | None = None,
        **facts: Unpack[TokenFacts],
    ) -> None:
        """
        Record the step's token block: the ids of the completion, their log probabilities (nats), and more.

        Arrays are one-dimensional, of Python numbers or from any array library.
        """
        if facts and not facts.keys() <= TOKEN_FACTS:
            check_names("tokens", facts, TOKEN_FACTS | {"logprobs"})
        if not self._takes("tokens"):
            return
        span = cast(RecordingSpan, self._span)
        if a.TOKEN_ENCODING in span.encoded or (span.pending is not None and span.has(TOKENS)):
            span.fault("tokens_replaced", "a step has one token block")
            span.forget(tokens.KEYS)
        block = tokens.snapshot(ids, logprobs, facts)
        if block is not None:
            span.leave(TOKENS, block)
        else:
            self._set_tokens(span.checked(tokens.make, {"ids": ids, "logprobs": logprobs, **facts}))

    def _set_tokens(self, block: Tokens) -> None:
        span = cast(RecordingSpan, self._span)
        span.forget(tokens.KEYS)
        span.encoded.update(span.checked(tokens.encode, block))

    @quiet
    def reward(self, value: RewardValue = rewards.COMPUTED, **scoring: Unpack[ScoringFacts]) -> None:
        """
        What this step pays; a value that is not a finite number is an error, and never a zero.

        With `components`, `weights` or another part of a scoring (as in `OpenEpisode.reward`), that is kept;
        without a value their weighted sum is paid.
        """
        if scoring:
            check_names("reward", scoring, SCORING_FACTS)
        if not self._takes("reward"):
            return
        span = cast(RecordingSpan, self._span)
        is_number = type(value) is float  # nearly always
        if scoring or value is rewards.COMPUTED or not (is_number or rewards.stated(value) is None):
            faults: Faults = []
            made = self._latest(rewards.make(value, faults, **scoring))
            self._score(made, faults, document_of(value))
            return
        found, status, raw = rewards.assess(value)
        if status == "error":
            span.fault("reward_invalid", str(raw))
        self._set_reward(found, status, raw)

    def _score(self, made: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring of the step with all its parts; it is what the step pays."""
        self._record_scoring(made, faults, document)
        self._set_reward(made.value, made.status, made.raw)

    def _record_scoring(self, made: Reward, faults: Faults, document: str = "") -> None:
        """Record a scoring, unless that was done when a spec scored the step."""
        if not made.span_id or made.span_id != self._scoring:
            span = cast(RecordingSpan, self._span)
            scoring = self._owner._segment.score(span, self._span_context, made, faults, place=self._place)
            self._scored_by(scoring, document)

    def _set_reward(self, value: float | None, status: str, raw: str | None) -> None:
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
        """Numbers and flags that a trainer knows about this step."""
        if not self._takes("record"):
            return
        span = cast(RecordingSpan, self._span)
        flags = {"terminated": terminated, "truncated": truncated}
        flags = {name: span.checked(flag, name, given) for name, given in flags.items()}
        self._flags = {**self._flags, **{name: said for name, said in flags.items() if said is not None}}
        span.encoded.update(
            steps.facts(
                trained_reward=trained_reward,
                value_estimate=value_estimate,
                return_target=return_target,
                advantage=advantage,
                logprob=logprob,
                **flags,
            )
        )

    @quiet_but(_no_call)
    def model_call(
        self,
        model: str | None = None,
        *,
        operation: str = "chat",
        provider: str | None = None,
        **parameters: Any,
    ) -> OpenCall:
        """
        A call of a language model.

        Sampling parameters go by name: temperature, top_p, top_k, max_tokens, seed.
        """
        return self._call(
            Call(operation=operation, name=model, provider=provider, parameters=parameters), SpanKind.CLIENT
        )

    @quiet_but(_no_call)
    def tool_call(self, name: str, *, arguments: object = None, id: str | None = None) -> OpenCall:
        """A call of a tool."""
        return self._call(
            Call(operation=calls.EXECUTE_TOOL, name=name, arguments=arguments, id=id), SpanKind.INTERNAL
        )

    def _call(self, call: Call, kind: SpanKind) -> OpenCall:
        return self._open_call(call, kind) or OpenCall(None, None)

    @quiet
    def _open_call(self, call: Call, kind: SpanKind, start_time: int | None = None) -> OpenCall | None:
        if not self._takes("a call"):
            return None
        name = calls.span_name(call.operation, call.name)
        span = self._owner._segment.span(name, self._span_context, kind, start_time, place=self._place)
        opened = OpenCall(self._host, span, call)
        self._calls = [*self._calls, opened]
        return opened

    @quiet
    def end(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the step; `end_time` in nanoseconds since the Unix epoch, by default now."""
        if self._takes("end"):
            if terminated is not None or truncated is not None:
                self.record(terminated=terminated, truncated=truncated)
            self._finish(end_time=end_time)

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        span: RecordingSpan = self._span  # type: ignore[assignment]  # who has none is never finished
        for call in self._calls:
            if not call.ended:
                call._finish()
        if error_type is not None:
            span.fail(error_type, error_message)
        if (
            self._owner._step_ended(self) and span._end_time is None
        ):  # the program may have ended the span itself
            span.conclude(end_time)
