"""
Open episodes, steps and calls: what a training loop talks to.

A handle starts when it is made and ends by `end()` or by leaving its `with` or `async with` block.
Inside the block it is the current one; without a block it is passed by hand.
Nothing here raises into the loop: a fault is noted on the span, counted in the session's stats, and logged once.
A handle that has nothing to record into is inert: it takes every call, does nothing, and is false.
"""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from typing_extensions import ParamSpec, Self

from mttp import ids
from mttp.clock import Clock
from mttp.codec import calls, content, rewards, steps, tokens
from mttp.codec import episodes as episode_codec
from mttp.codec.plain import Faults, from_json, name_key, number, plain, text, to_json
from mttp.episodes import Call, Reward, Spec, Tokens
from mttp.livespan import LiveSpan, Origin, qualified_name
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["Host", "OpenCall", "OpenEpisode", "OpenStep", "current_episode", "current_step"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_EPISODE = otel_context.create_key("mttp-episode")
_STEP = otel_context.create_key("mttp-step")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_ABORTS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class Host(Protocol):
    """What the recorder needs of a session."""

    run_id: str
    origin: Origin

    def ended(self, span: LiveSpan) -> None:
        """Take an ended span."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and log the first of its kind."""

    def opened(self, episode: OpenEpisode) -> int:
        """Take note of an episode that started; its index."""

    def finished(self, episode: OpenEpisode) -> None:
        """Take note of its end."""

    def stepped(self) -> None:
        """Take note of a step that started."""


def quiet(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """A method of a handle that counts whatever goes wrong in it instead of raising; it answers None then."""

    @functools.wraps(method)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            handle = cast("_Handle", args[0])
            handle._fault("internal_error", f"{method.__qualname__}: {error!r}")
            return cast(_T, None)

    return guarded


class _Handle:
    """What episodes, steps and calls share: a span, a place in the context, and an end."""

    def __init__(self, host: Host | None, span: LiveSpan | None) -> None:
        self._host = host
        self._span = span
        self._outer: object = None
        self._attached: list[Token[Context]] = []

    def __bool__(self) -> bool:
        """Whether the handle records, or recorded, anything at all."""
        return self._span is not None

    @property
    def span(self) -> trace.Span:
        """The OpenTelemetry span, for attributes, events and links of the user's own."""
        return self._span or trace.INVALID_SPAN

    @property
    def span_id(self) -> str:
        """The span's id, 16 hex digits; empty for an inert handle."""
        return f"{self._span.context.span_id:016x}" if self._span else ""

    @property
    def ended(self) -> bool:
        """Whether the handle takes nothing more."""
        return self._span is None or not self._span.is_recording()

    def _takes(self, what: str) -> bool:
        if not self.ended:
            return True
        if self._span is not None:
            self._fault("after_end", f"{what} after the end of {self._span.name!r}")
        return False

    def _fault(self, kind: str, detail: str = "") -> None:
        if self._host is not None:
            self._host.fault(kind, detail)

    def __enter__(self) -> Self:
        if self._span is not None:
            self._attached.append(otel_context.attach(self._as_context(self._span)))
        return self

    def _as_context(self, span: LiveSpan) -> Context:
        """The context inside the block."""
        return trace.set_span_in_context(span)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        if self._attached:
            _detach(self._attached.pop())
        if not self.ended:
            self._leave(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace_)

    @quiet
    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self._finish()
        elif isinstance(error, _ABORTS):
            self._finish(status="aborted", stop_reason=qualified_name(error))
        else:
            assert self._span is not None
            self._span.record_exception(error)
            self._finish(status="error", error_type=qualified_name(error), error_message=str(error))

    def _finish(self, **how: Any) -> None:
        raise TypeError(f"{type(self).__name__} has no end")


def _detach(token: Token[Context]) -> None:
    """Put the context back, unless this is another context: an async generator's end may run anywhere."""
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        return


class _Measured(_Handle):
    """A handle that takes metrics and metadata of the user's own."""

    def __init__(self, host: Host | None, span: LiveSpan | None) -> None:
        super().__init__(host, span)
        self._metrics: dict[str, float] = {}
        self._metadata: dict[str, Any] = {}
        self._raw_names: dict[str, str] = {}

    @property
    def metrics(self) -> dict[str, float]:
        """The user's own numbers so far, by name as recorded."""
        return dict(self._metrics)

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's own facts so far, by name as recorded."""
        return dict(self._metadata)

    @quiet
    def metric(self, name: str, value: float) -> None:
        """Record a number of your own; a name is kept in lower case letters, digits and underscores."""
        if not self._takes("metric"):
            return
        found = number(value)
        if found is None:
            cast(LiveSpan, self._span).fault("metric_invalid", f"{name} is {value!r:.200}")
        elif (key := self._own_name(a.METRIC, name)) is not None:
            self._metrics[key] = found
            self._keep(a.METRIC, key, found)

    @quiet
    def set_metadata(self, name: str, value: object) -> None:
        """Record a fact of your own; names as for `metric`."""
        if self._takes("set_metadata") and (key := self._own_name(a.METADATA, name)) is not None:
            span = cast(LiveSpan, self._span)
            kept = _listed(span.checked(plain, value))
            self._metadata[key] = kept
            self._keep(a.METADATA, key, kept)

    def _own_name(self, prefix: str, name: object) -> str | None:
        """The name as recorded; None where another name of the user's already became it."""
        key = name_key(name)
        raw = self._raw_names.setdefault(f"{prefix}.{key}", str(name))
        if raw == str(name) and key:
            return key
        cast(LiveSpan, self._span).fault("name_collision", text(f"{name} and {raw}", []))
        return None

    def _keep(self, prefix: str, key: str, value: Any) -> None:
        cast(LiveSpan, self._span)._keep(f"{prefix}.{key}", value)


def _listed(value: Any) -> Any:
    """A fact as reading gives it back: arrays as lists."""
    return value.tolist() if hasattr(value, "tolist") else value


class OpenCall(_Handle):
    """A call of a model or a tool within a step, from request to answer."""

    def __init__(self, host: Host | None, span: LiveSpan | None, call: Call | None = None) -> None:
        super().__init__(host, span)
        self._call = call
        self._answer: dict[str, Any] = {}

    @quiet
    def response(
        self,
        *,
        model: str | None = None,
        id: str | None = None,
        finish_reasons: Sequence[str] = (),
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """What the model's answer says about itself."""
        if self._takes("response"):
            given = {
                "response_model": model,
                "id": id,
                "finish_reasons": tuple(finish_reasons),
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
            }
            self._answer |= {name: value for name, value in given.items() if value is not None}

    @quiet
    def result(self, value: object) -> None:
        """What the tool answered."""
        if self._takes("result"):
            self._answer["result"] = value

    @quiet
    def end(self) -> None:
        """End the call."""
        if self._takes("end"):
            self._finish()

    def _finish(
        self,
        *,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        span = cast(LiveSpan, self._span)
        assert self._call is not None
        span.values |= span.checked(calls.encode, replace(self._call, **self._answer))
        if error_type is not None:
            span.fail(error_type, error_message)
        span.end(end_time)


class OpenStep(_Measured):
    """A step while it happens."""

    def __init__(self, episode: OpenEpisode | None, span: LiveSpan | None, index: int = 0) -> None:
        super().__init__(None if episode is None else episode._host, span)
        self._episode = episode
        self._index = index
        self._reward: float | None = None
        self._invalid = False
        self._flags: dict[str, bool] = {}
        self._calls: list[OpenCall] = []

    def _as_context(self, span: LiveSpan) -> Context:
        self._outer = otel_context.get_value(_STEP)
        return otel_context.set_value(_STEP, self, super()._as_context(span))

    @property
    def index(self) -> int:
        """Position in the episode, from 0."""
        return self._index

    @property
    def episode(self) -> OpenEpisode:
        """The episode that this step belongs to."""
        return self._episode or _INERT_EPISODE

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

    def _content(self, keys: content.Keys, value: object, max_bytes: int | None) -> None:
        span = cast(LiveSpan, self._span)
        faults: Faults = []
        span.values |= content.encode(keys, value, faults, span.omissions, max_bytes=max_bytes)
        span.note(faults)

    @quiet
    def tokens(self, ids: Any = None, **facts: Any) -> None:
        """
        Record the step's token block: ids of the completion, and whatever else `mttp.Tokens` names.

        Each array is one-dimensional, of Python numbers or from any array library.
        """
        if not self._takes("tokens"):
            return
        self._set_tokens(cast(LiveSpan, self._span).checked(tokens.make, {"ids": ids, **facts}))

    def _set_tokens(self, block: Tokens) -> None:
        span = cast(LiveSpan, self._span)
        _forget(span, tokens.KEYS)
        span.values |= span.checked(tokens.encode, block)

    @quiet
    def reward(self, value: object, **scoring: Any) -> None:
        """
        What this step pays; a value that is not a finite number is an error, and never a zero.

        With `components`, `weights` or any other part of a scoring (see `OpenEpisode.reward`), that is recorded too.
        """
        if not self._takes("reward"):
            return
        span = cast(LiveSpan, self._span)
        if scoring:
            self._set_reward(self.episode._score(span, value, **scoring))
            return
        found, status, raw = rewards.assess(value)
        if status == "error":
            span.fault("reward_invalid", str(raw))
        self._set_reward(Reward(value=found, status=status, raw=raw))

    def _set_reward(self, made: Reward) -> None:
        span = cast(LiveSpan, self._span)
        _forget(span, steps.REWARD_KEYS)
        span.values |= steps.paid(made)
        self._reward = made.value
        self._invalid = made.status == "error"

    @quiet
    def record(
        self,
        *,
        trained_reward: float | None = None,
        value_estimate: float | None = None,
        return_target: float | None = None,
        logprob: float | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> None:
        """Numbers and flags that a trainer knows about this step."""
        if not self._takes("record"):
            return
        flags = {"terminated": terminated, "truncated": truncated}
        self._flags |= {name: bool(flag) for name, flag in flags.items() if flag is not None}
        cast(LiveSpan, self._span).values.update(
            steps.facts(
                trained_reward=trained_reward,
                value_estimate=value_estimate,
                return_target=return_target,
                logprob=logprob,
                **flags,
            )
        )

    def model_call(
        self, model: str | None = None, *, operation: str = "chat", provider: str | None = None, **parameters: Any
    ) -> OpenCall:
        """A call of a language model; sampling parameters by name (temperature, top_p, top_k, max_tokens, seed)."""
        return self._call(
            Call(operation=operation, name=model, provider=provider, parameters=parameters), SpanKind.CLIENT
        )

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
        name = text(calls.span_name(str(call.operation), call.name), [])
        span = self.episode._child(name, cast(LiveSpan, self._span), kind, start_time)
        opened = OpenCall(self._host, span, call)
        self._calls.append(opened)
        return opened

    @quiet
    def end(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the step; `end_time` in nanoseconds since the Unix epoch, by default now."""
        if self._takes("end"):
            self.record(terminated=terminated, truncated=truncated)
            self._finish(end_time=end_time)

    def _finish(
        self,
        *,
        status: str = "completed",
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        **_: Any,
    ) -> None:
        span = cast(LiveSpan, self._span)
        for call in self._calls:
            if not call.ended:
                call._finish()
        if error_type is not None:
            span.fail(error_type, error_message)
        self.episode._step_ended(self)
        span.end(end_time)


class OpenEpisode(_Measured):
    """An episode while it happens. Its properties are those of `mttp.Episode`, as far as they are known."""

    def __init__(
        self,
        host: Host | None,
        *,
        trace_id: int = 0,
        episode_id: str | None = None,
        start_time: int | None = None,
        slices: Sequence[str] | str = (),
        seed: int | str | None = None,
        inputs: object = None,
        metadata: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        **identity: Any,
    ) -> None:
        super().__init__(host, None)
        self._lock = threading.RLock()
        self._open_steps: dict[int, OpenStep] = {}
        self._rewards: list[float] = []
        self._invalid_rewards = 0
        self._next_index = 0
        self._marked = False
        self._total: Reward | None = None
        self._ending: dict[str, Any] = {}
        self._stated: dict[str, bool | None] = {"terminated": None, "truncated": None}
        self._identity: dict[str, Any] = {}
        if host is None:
            return
        self._children = _Counted(host)
        self._clock = Clock(start_time)
        faults: Faults = []
        trace_id = trace_id or ids.trace_id()
        self._episode_id = text(str(episode_id), faults) if episode_id else f"{trace_id:032x}"
        facts = {**identity, "slices": slices, "seed": episode_codec.seed(seed), "inputs": inputs}
        facts.setdefault("index", host.opened(self))
        values = episode_codec.identity(run_id=host.run_id, episode_id=self._episode_id, faults=faults, **facts)
        self._identity = values
        self._span = self._root(trace_id, values, start_time)
        self._span.note(faults)
        for name, fact in (metadata or {}).items():
            self.set_metadata(name, fact)
        for name, metric in (metrics or {}).items():
            self.metric(name, metric)

    def _root(self, trace_id: int, values: dict[str, Any], start_time: int | None) -> LiveSpan:
        """The episode's root: of no parent, linked to what was current, so that nobody's sampling swallows it."""
        assert self._host is not None
        ambient = trace.get_current_span().get_span_context()
        return LiveSpan(
            f"{names.EPISODE} {values[a.ENV_ID]}" if a.ENV_ID in values else names.EPISODE,
            context=_context(trace_id),
            parent=None,
            clock=self._clock,
            origin=self._host.origin,
            sink=self._host,
            values=dict(values),
            start_time=self._clock.now() if start_time is None else start_time,
            links=[Link(ambient)] if ambient.is_valid else (),
        )

    def _as_context(self, span: LiveSpan) -> Context:
        self._outer = otel_context.get_value(_EPISODE)
        context = otel_context.set_value(_STEP, None, super()._as_context(span))
        return otel_context.set_value(_EPISODE, self, context)

    # What is known so far.

    @property
    def trace_id(self) -> str:
        """The episode's trace, 32 hex digits; empty for an inert handle."""
        return f"{self._span.context.trace_id:032x}" if self._span else ""

    @property
    def id(self) -> str:
        """The episode's own id."""
        return str(self._identity.get(a.EPISODE_ID, ""))

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""
        return str(self._identity.get(a.RUN_ID, ""))

    @property
    def env(self) -> str:
        """The environment's id."""
        return str(self._identity.get(a.ENV_ID, ""))

    @property
    def task(self) -> str | None:
        """The task's id."""
        return self._identity.get(a.TASK_ID)

    @property
    def group(self) -> str | None:
        """The group that it is compared within."""
        return self._identity.get(a.GROUP_ID)

    @property
    def seed(self) -> int | str | None:
        """The environment's seed."""
        return episode_codec.seed(self._identity.get(a.ENV_SEED))

    @property
    def policy(self) -> str | None:
        """The policy's id."""
        return self._identity.get(a.POLICY_ID)

    @property
    def slices(self) -> list[str]:
        """Named subsets that the task belongs to."""
        return list(self._identity.get(a.TASK_SLICES, ()))

    @property
    def inputs(self) -> Any:
        """What a reward needs besides the steps, as JSON gives it back."""
        document = self._identity.get(a.INPUTS_JSON)
        return None if document is None else from_json(document)

    @property
    def status(self) -> str:
        """unfinished, until it ends."""
        return str(self._ending.get("status", "unfinished"))

    @property
    def outcome(self) -> str:
        """success, failure or unknown."""
        return str(self._ending.get("outcome", "unknown"))

    @property
    def terminated(self) -> bool | None:
        """Whether the task itself ended."""
        return self._stated["terminated"]

    @property
    def truncated(self) -> bool | None:
        """Whether a limit cut it off."""
        return self._stated["truncated"]

    @property
    def length(self) -> int:
        """Environment steps so far."""
        return int(self._ending.get("length", self._next_index))

    @property
    def step_reward_sum(self) -> float | None:
        """Sum of the step rewards that are numbers; None when no ended step states one."""
        return math.fsum(self._rewards) if self._rewards else None

    @property
    def return_basis(self) -> str | None:
        """episode where a total was stated, steps where rewards were, None where nothing was."""
        if self._total is not None or "return_" in self._ending:
            return "episode"
        return "steps" if self._rewards or self._invalid_rewards else None

    @property
    def return_(self) -> float | None:
        """What the whole episode was paid so far; None where that is not known."""
        if "return_" in self._ending:
            return cast("float | None", self._ending["return_"])
        if self._total is not None:
            return self._total.value
        return None if self._invalid_rewards else self.step_reward_sum

    # What a training loop says.

    def step(self, *, start_time: int | None = None, index: int | None = None) -> OpenStep:
        """
        Start the next step.

        `start_time` in nanoseconds since the Unix epoch, by default now; `index` by default one after the last.
        """
        return self._open_step(start_time, index) or _INERT_STEP

    @quiet
    def _open_step(self, start_time: int | None, index: int | None) -> OpenStep | None:
        if not self._takes("step"):
            return None
        assert self._host is not None
        with self._lock:
            if "status" in self._ending:
                return None
            position = self._next_index if index is None else int(index)
            self._next_index = max(self._next_index, position + 1)
            span = self._child(names.STEP, cast(LiveSpan, self._span), SpanKind.INTERNAL, start_time)
            span.values[a.STEP_INDEX] = position
            step = OpenStep(self, span, position)
            self._open_steps[id(step)] = step
        self._host.stepped()
        return step

    def _child(
        self, name: str, parent: LiveSpan, kind: SpanKind = SpanKind.INTERNAL, start_time: int | None = None
    ) -> LiveSpan:
        assert self._host is not None
        return LiveSpan(
            name,
            context=_context(parent.context.trace_id),
            parent=parent.context,
            clock=self._clock,
            origin=self._host.origin,
            sink=self._children,
            values={a.RUN_ID: self._host.run_id, a.EPISODE_ID: self._episode_id},
            start_time=start_time,
            kind=kind,
        )

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
    ) -> None:
        """
        State what the whole episode is paid, and what that was made of.

        `value` is a number; None means that none is known (status missing, or what `status` says).
        Whatever is not a finite number is an error, kept as text, and never a zero.
        A value that differs from its components' weighted sum is recorded as given, and flagged.
        """
        if not self._takes("reward"):
            return
        made = self._score(
            cast(LiveSpan, self._span),
            value,
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
        self._set_total(made)

    def _score(self, parent: LiveSpan, value: object, **scoring: Any) -> Reward:
        """Record one scoring under `parent`, as a value made from what the caller stated."""
        faults: Faults = []
        return self._scored(parent, rewards.make(value, faults, **scoring), faults)

    def _scored(self, parent: LiveSpan, made: Reward, faults: Faults) -> Reward:
        span = self._child(rewards.span_name(made), parent, start_time=made.start_time)
        span.note(faults)
        span.values |= span.checked(rewards.encode, made)
        for grade in rewards.grades(made):
            child = self._child(f"{names.GRADE} {grade.grader}", span, start_time=made.start_time)
            child.values |= child.checked(rewards.encode, grade)
            child.end(made.end_time)
        span.end(made.end_time)
        return made

    def _set_total(self, made: Reward) -> None:
        """
        Take a scoring as the episode's total, where it states one.

        Its scalars stand on the root too, where samplers and trace queries look.
        """
        self._total = made if made.status in ("ok", "error") else None
        span = cast(LiveSpan, self._span)
        _forget(span, rewards.KEYS)
        span.values |= {key: value for key, value in rewards.encode(made, []).items() if key in rewards.KEYS}

    @quiet
    def final_observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """What the environment shows after the last action."""
        if self._takes("final_observation"):
            span = cast(LiveSpan, self._span)
            faults: Faults = []
            span.values |= content.encode(
                content.FINAL_OBSERVATION, value, faults, span.omissions, max_bytes=max_bytes
            )
            span.note(faults)

    @quiet
    def end(
        self,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
        outcome: str | None = None,
        status: str = "completed",
        stop_reason: str | None = None,
        length: int | None = None,
        end_time: int | None = None,
        **facts: Any,
    ) -> None:
        """
        End the episode; steps that are still open end with it.

        `facts` may state `policy_version_end`, `discount`, `advantage`, `final_value` and `cost_usd`.
        """
        if self._takes("end"):
            self._finish(
                terminated=terminated,
                truncated=truncated,
                outcome=outcome,
                status=status,
                stop_reason=stop_reason,
                length=length,
                end_time=end_time,
                **facts,
            )

    def _step_ended(self, step: OpenStep) -> None:
        with self._lock:
            self._open_steps.pop(id(step), None)
            if step._reward is not None:
                self._rewards.append(step._reward)
            elif step._invalid:
                self._invalid_rewards += 1
            self._stated |= step._flags

    def _finish(
        self,
        *,
        status: str = "completed",
        outcome: str | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        length: int | None = None,
        **facts: Any,
    ) -> None:
        assert self._host is not None
        for step in list(self._open_steps.values()):
            step._finish(end_time=end_time)
        flags = {"terminated": terminated, "truncated": truncated}
        self._stated |= {name: bool(flag) for name, flag in flags.items() if flag is not None}
        span = cast(LiveSpan, self._span)
        closing = {
            "status": status,
            "outcome": outcome or "unknown",
            "length": self._next_index if length is None else length,
            **{name: value for name, value in facts.items() if value is not None},
        }
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._ending |= closing
            self._host.finished(self)
            span.values |= span.checked(self._encode_ending)
        span.end(end_time)

    def _encode_ending(self, faults: Faults) -> dict[str, Any]:
        facts = {**self._ending, **self._stated, "return_": self.return_, "step_reward_sum": self.step_reward_sum}
        return episode_codec.ending(
            faults=faults,
            return_basis=self.return_basis,
            step_count=self._next_index,
            span_count=self._children.spans + 1,
            **facts,
        )

    def mark(self) -> None:
        """
        Record the span that keeps an open episode's identity, unless that was done or the episode has ended.

        Called by whoever flushes, on any thread.
        """
        with self._lock:
            if self._marked or self._span is None or self.ended or "status" in self._ending:
                return
            self._marked = True
            start = self._span.start_time
            marker = self._child(names.EPISODE_START, self._span, start_time=start)
            marker.values |= self._span.values.copy()
            marker.end(start)


class _Counted:
    """Where an episode's children go: counted, so that a reader can prove that none is missing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.spans = 0

    def ended(self, span: LiveSpan) -> None:
        """Take an ended span."""
        self.spans += 1
        self._host.ended(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self._host.fault(kind, detail)


def _forget(span: LiveSpan, keys: frozenset[str]) -> None:
    for key in keys & span.values.keys():
        del span.values[key]


def _context(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, ids.span_id(), is_remote=False, trace_flags=_SAMPLED)


_INERT_EPISODE = OpenEpisode(None)
_INERT_STEP = OpenStep(None, None)


def inert_episode() -> OpenEpisode:
    """An episode that records nothing."""
    return _INERT_EPISODE


def inert_step() -> OpenStep:
    """A step that records nothing."""
    return _INERT_STEP


def current_episode() -> OpenEpisode:
    """The episode whose block this code runs in; an inert, false one where there is none."""
    found = otel_context.get_value(_EPISODE)
    while isinstance(found, OpenEpisode) and found.ended:
        found = found._outer
    return found if isinstance(found, OpenEpisode) else _INERT_EPISODE


def current_step() -> OpenStep:
    """The step whose block this code runs in; an inert, false one where there is none."""
    found = otel_context.get_value(_STEP)
    while isinstance(found, OpenStep) and found.ended:
        found = found._outer
    return found if isinstance(found, OpenStep) else _INERT_STEP
