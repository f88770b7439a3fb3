"""`Handle`, the base of episodes, agents, steps and calls, and the OpenTelemetry context that they use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, Token
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from typing_extensions import Self

from mttp.codec import content
from mttp.codec.fields import integer, mapping
from mttp.codec.pictures import FEWEST
from mttp.codec.plain import Faults, number, plain, scalar_text, text
from mttp.model.episodes import Reward
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.model.keys import name_key
from mttp.model.live import Live
from mttp.otlp.spans import Outlasted, RecordingSpan, error_message, qualified_name
from mttp.otlp.spans.guarding import failed, quiet
from mttp.semconv import attributes as a

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = [
    "SPAN_KEY",
    "STEP_KEY",
    "TRAJECTORY_KEY",
    "Handle",
    "POLICY_KEY",
    "ScoredHandle",
    "attach",
    "current",
    "detach",
    "document_of",
    "restore",
    "settled",
]

TRAJECTORY_KEY = otel_context.create_key("mttp-trajectory")
"""The context key of the current episode or agent."""
STEP_KEY = otel_context.create_key("mttp-step")
"""The context key of the current step."""
POLICY_KEY = otel_context.create_key("mttp-policy")
"""The context key of the attributes of the policy that is evaluated; episodes that start there have them."""
(SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""OpenTelemetry's context key of the current span."""


def _variable() -> ContextVar[Context] | None:
    """Return the variable that holds OpenTelemetry's context; None with another context implementation."""
    token = otel_context.attach(Context())
    otel_context.detach(token)
    return token.var if isinstance(cast(object, token), Token) else None


_context = _variable()
current: Callable[[], Context] = _context.get if _context is not None else otel_context.get_current
"""Returns the current context."""
attach: Callable[[Context], Token[Context]] = _context.set if _context is not None else otel_context.attach
"""Makes a context the current one; returns the token for `detach`."""
restore: Callable[[Token[Context]], object] = _context.reset if _context is not None else otel_context.detach
"""Restores the previous context; raises ValueError or RuntimeError, which `detach` ignores."""

_NESTED = frozenset({list, dict})
_OF_ERRORS = frozenset({"status", "stop_reason", "error_type", "error_message"})
"""Facts of an end by an exception, which each process records of its part."""
_ABORTS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class Handle(Live):
    """
    A span with methods to record on it; a context manager in whose block it is current.

    An ended handle is current nowhere. A context may still hold its span: that of the block in which `end`
    was called, or that in which a generator with the block was started, if it is closed in another task or
    thread, or out of order. There the span stands for what encloses the block, see `RecordingSpan.outside`.

    The handle of what another process has started has that process's `_span_context`, and the span of this
    process's part of the episode, which it does not end.
    """

    # Rare attributes have defaults on the class, because steps are created in the training loop.
    _outer: object = None
    _attached: tuple[Token[Context], Context, Any] | None
    """The token and the context of its innermost block, and the same of the next outer one."""

    _ACCEPTED: ClassVar[frozenset[str]] = frozenset()
    """The calls that a process can make of what another one has started."""
    _is_remote = False
    """Whether another process has started it."""
    _has_left = False
    """Whether a remote one has ended in this process."""
    _own_context: SpanContext | None = None

    def __init__(self, host: RunRecorder | None, span: RecordingSpan | None) -> None:
        self._host = host
        self._span = span
        self._attached = None

    def __bool__(self) -> bool:
        """Whether the handle records; False for an inert handle."""
        return self._span is not None

    def __repr__(self) -> str:
        if self._span is None:
            return f"<{type(self).__name__}: inert>"
        return (
            f"<{type(self).__name__} {self._span.name!r} {self.span_id}, {'ended' if self.ended else 'open'}>"
        )

    @property
    def span(self) -> trace.Span:
        """The OpenTelemetry span, to which you can add attributes, events and links."""
        return self._span or trace.INVALID_SPAN

    @property
    def span_id(self) -> str:
        """The span's id, 16 hex digits; empty for an inert handle."""
        return f"{self._span_context.span_id:016x}" if self._span else ""

    @property
    def _span_context(self) -> SpanContext:
        """The context of the span whose children its parts are."""
        if self._own_context is None:
            self._own_context = cast(RecordingSpan, self._span).identity
        return self._own_context

    @property
    def ended(self) -> bool:
        """Whether the handle has ended, or is inert."""
        span = self._span
        return span is None or span._end_time is not None or self._has_left

    def _accepts(self, what: str) -> bool:
        span = self._span
        if span is None:
            return False
        if span._end_time is None and not self._is_remote:
            return True
        if self._is_remote and what not in self._ACCEPTED:
            self._refuse(what)
        elif self.ended:
            self._fault("after_end", f"{what} after the end{'' if self._is_remote else f' of {span.name!r}'}")
        else:
            return True
        return False

    def _refuse(self, *names: str) -> None:
        """Count a fault for each fact that only another process can record."""
        for name in names:
            detail = f"{name} can be recorded only by the process that started it"
            (self._host if self.ended else self._span).fault("not_the_owner", detail)  # type: ignore[union-attr]

    def _is_refused(self, facts: Mapping[str, Any]) -> bool:
        """Return whether the end is that of another process; facts of it are faults."""
        if self._is_remote:
            self._refuse(
                *(name for name, fact in facts.items() if fact is not None and name not in _OF_ERRORS)
            )
        return self._is_remote

    def _fault(self, kind: str, detail: str = "") -> None:
        if self._host is not None:
            self._host.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        """Count an exception of a recording call, and note it on the span while that is open."""
        span = self._span
        failed(self._host if span is None or span._end_time is not None else span, what, error)

    def _remember_outer(self, outer: object) -> None:
        """Remember the enclosing handle, at the first entry and unless it is this handle."""
        if outer is not self and self._attached is None:
            self._outer = outer

    def __enter__(self) -> Self:
        try:
            span = self._span
            if span is not None and span._end_time is None:
                context = self._as_context()
                self._attached = (attach(context), context, self._attached)
        except Exception as error:
            raise_interrupt(error)
            self._failed(f"{type(self).__name__}.__enter__", error)
        return self

    def _as_context(self) -> Context:
        """Return the context of the block."""
        context: Any = current().copy()
        context[SPAN_KEY] = self._span
        return context  # type: ignore[no-any-return]  # OpenTelemetry only reads it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        try:
            is_left = False
            if self._attached is not None:
                token, context, outer = self._attached
                is_left = not ((current() is context or _may_restore(context)) and detach(token))
                if is_left:
                    self._move_out()
                self._attached = outer
            if self.ended:
                if not (is_left or self._attached):
                    self._move_out(back=True)
            else:
                self._leave(error)
        except Exception as failure:
            raise_interrupt(failure)
            with suppress_errors():  # the stack may be exhausted
                self._failed(type(self).__name__, failure)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace_)

    def _move_out(self, *, back: bool = False) -> None:
        """Have contexts that hold its span see what encloses its blocks instead; `back` undoes it."""
        span = self._current_span
        if span is not None:
            span.outside = None if back else self._context_outside()

    @property
    def _current_span(self) -> Outlasted | None:
        """The span that is current in its block, if that is its own."""
        return None if self._is_remote else self._span

    def _context_outside(self) -> Context:
        """Return the context of the outermost block's place."""
        attached = self._attached
        before: object = None
        while attached is not None:
            token, _, attached = attached
            before = getattr(token, "old_value", None)
        return settled(cast(Context, before)) if isinstance(before, dict) else Context()

    def _end_span(self, end_time: int | None = None) -> None:
        """End the span."""
        if self._attached is not None:
            self._move_out()
        cast(RecordingSpan, self._span).conclude(end_time)

    def _leave(self, error: BaseException | None) -> None:
        """End with the block."""
        if error is None:
            self._finish()
        else:
            self._finish_with_error(error)

    def _finish_with_error(self, error: BaseException) -> None:
        if isinstance(error, _ABORTS):
            self._finish(status="aborted", stop_reason=qualified_name(error))
        else:
            assert self._span is not None
            self._span.record_exception(error)
            self._finish(status="error", error_type=qualified_name(error), error_message=error_message(error))

    def _end_children(self, children: Iterable[Handle], **how: Any) -> None:
        """End these handles; an error of one costs only its own values."""
        for child in children:
            try:
                child._finish(**how)
            except Exception as error:
                raise_interrupt(error)
                child._failed(type(child).__name__, error)
                child._conclude(how.get("end_time"))

    def _attempt(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call a part of the end; an exception is a fault, and the rest of the end goes on."""
        try:
            call(*args, **kwargs)
        except Exception as error:
            raise_interrupt(error)
            self._failed(getattr(call, "__qualname__", type(call).__name__), error)

    def _conclude(self, end_time: int | None) -> None:
        """End the span that an error has left open."""
        if self._span is not None and self._span._end_time is None and not self._is_remote:
            self._span.conclude(end_time)

    def _finish(self, **how: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} can't end with {how}")


def document_of(result: object) -> str:
    """Return the reward spec document of a result; empty for any other value."""
    if not hasattr(type(result), "reward"):
        return ""
    try:
        document = getattr(result, "document", "")
        return document if isinstance(document, str) else ""
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        return ""


def detach(token: Token[Context]) -> bool:
    """Restore the previous context; return False in another context, where an async generator may end."""
    try:
        restore(token)
    except Exception as error:
        raise_interrupt(error)
        return False
    return True


def _may_restore(context: Context) -> bool:
    """
    Return whether the end of a block may restore what was current before it.

    Not where an open step of another block is current by now, such as that of another generator.
    """
    span, block_span = current().get(SPAN_KEY), context.get(SPAN_KEY)
    if span is block_span or not isinstance(span, RecordingSpan) or span._end_time is not None:
        return True
    return isinstance(block_span, RecordingSpan) and span._parent == block_span.identity


def settled(context: Context) -> Context:
    """Return the context, or what encloses the blocks that have ended if it holds their span."""
    while (outside := getattr(context.get(SPAN_KEY), "outside", None)) is not None:
        context = outside
    return context


class ScoredHandle(Handle):
    """A handle with rewards, and with metrics and metadata of the user."""

    _scoring: str = ""
    """The span id of its last scoring, 16 hex digits."""
    _scored: Reward | None = None
    """Its last scoring."""

    def _as_latest(self, scoring: Reward) -> Reward:
        """Return the scoring, without its times if another was recorded later: the last one counts."""
        if not self._scoring or scoring.span_id == self._scoring:
            return scoring
        return replace(scoring, start_time=None, end_time=None)

    def _remember_scoring(self, scoring: RecordingSpan, reward: Reward, document: str = "") -> None:
        """Remember a recorded scoring with its span, and the document of its spec."""
        self._scored = reward
        self._scoring = f"{scoring._span_id:016x}"
        if document:
            cast("RunRecorder", self._host).keep_spec_document(document)

    def _keep_content(self, keys: content.ContentKeys, value: object, max_bytes: object) -> None:
        """Record a copy of an observation or an action."""
        span = cast(RecordingSpan, self._span)
        faults: Faults = []
        omissions: list[str] = []
        limit = max_bytes if type(max_bytes) is int else integer("max_bytes", max_bytes, faults)
        attributes = content.encode(keys, value, faults, omissions, max_bytes=limit)
        copy = attributes.get(keys.value)
        if type(copy) in _NESTED or (type(copy) is str and len(copy) >= FEWEST):
            attributes[keys.value] = span.bounded(keys.value, copy)
        span.encoded.update(attributes)
        if omissions:
            span.omissions.extend(omissions)
        if faults:
            span.note(faults)

    _metrics: dict[str, float] | None = None
    _metadata: dict[str, Any] | None = None
    _raw_names: dict[str, str] | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The user's metrics so far, by recorded name."""
        return dict(self._metrics or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's metadata so far, by recorded name."""
        return dict(self._metadata or {})

    @quiet
    def metric(self, name: str, value: float) -> None:
        """Record a number; its name is converted to lower-case letters, digits and underscores."""
        if not self._accepts("metric"):
            return
        figure = number(value)
        if figure is None:
            detail = f"{text(name, [])} is {scalar_text(value):.200}"
            cast(RecordingSpan, self._span).fault("metric_invalid", detail)
        elif (key := self._own_name(a.METRIC, name)) is not None:
            self._metrics = self._metrics or {}
            self._metrics[key] = figure
            span = cast(RecordingSpan, self._span)
            if span.admits(attribute := f"{a.METRIC}.{key}"):
                span.encoded[attribute] = figure

    @quiet
    def set_metadata(self, name: str, value: object) -> None:
        """Record a fact of plain data; its name is converted as by `metric`."""
        if self._accepts("set_metadata") and (key := self._own_name(a.METADATA, name)) is not None:
            span = cast(RecordingSpan, self._span)
            copy = _listed(span.checked(plain, value))
            copy = span.without_secrets(f"{a.METADATA}.{key}", copy)
            self._metadata = self._metadata or {}
            self._metadata[key] = copy
            span._keep(f"{a.METADATA}.{key}", copy)

    @quiet
    def _describe(self, metadata: object, metrics: object) -> None:
        """Record a mapping of metadata and one of metrics."""
        span = self._span
        if span is None:
            return
        for name, fact in span.checked(mapping, "metadata", metadata).items():
            self.set_metadata(name, fact)
        for name, metric in span.checked(mapping, "metrics", metrics).items():
            self.metric(name, metric)

    def _own_name(self, prefix: str, name: object) -> str | None:
        """Return the recorded name; None, with a fault, if another name is already recorded under it."""
        original = text(name, [])
        key = name_key(original)
        self._raw_names = self._raw_names or {}
        raw = self._raw_names.setdefault(f"{prefix}.{key}", original)
        if raw == original and key:
            return key
        cast(RecordingSpan, self._span).fault("name_collision", f"{original} and {raw}")
        return None


def _listed(value: Any) -> Any:
    """Return a value as it is read back: arrays as lists."""
    return value.tolist() if hasattr(value, "tolist") else value
