"""What episodes, steps and calls share while they are open: a span, a place in the context, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from typing_extensions import Self

from mttp.codec.plain import mapped, number, plain, text
from mttp.model.episodes import Reward
from mttp.model.keys import name_key
from mttp.otlp.spans import RecordingSpan, SpanOrigin, error_message, qualified_name
from mttp.otlp.spans.guarding import failed, quiet
from mttp.semconv import attributes as a

__all__ = [
    "SPAN_KEY",
    "STEP_KEY",
    "TRAJECTORY_KEY",
    "BuffersSteps",
    "Handle",
    "Host",
    "HasStartMarker",
    "Measured",
    "attach",
    "current",
    "detach",
    "document_of",
    "restore",
]

TRAJECTORY_KEY = otel_context.create_key("mttp-trajectory")
"""Where the OpenTelemetry context holds whose steps come next: the current episode's, or an agent's."""
STEP_KEY = otel_context.create_key("mttp-step")
"""Where the OpenTelemetry context holds the current step."""
(SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""Where the OpenTelemetry context holds the current span."""


def _variable() -> ContextVar[Context] | None:
    """The variable that OpenTelemetry keeps its context in, unless it was told to keep it elsewhere."""
    token = otel_context.attach(Context())
    otel_context.detach(token)
    return token.var if isinstance(cast(object, token), Token) else None


_context = _variable()
current: Callable[[], Context] = _context.get if _context is not None else otel_context.get_current
"""The context that is current."""
attach: Callable[[Context], Token[Context]] = _context.set if _context is not None else otel_context.attach
"""Make a context the current one; `detach` takes what this returns."""
restore: Callable[[Token[Context]], object] = _context.reset if _context is not None else otel_context.detach
"""Put back what was current; raises ValueError or RuntimeError where `detach` does nothing."""

_ABORTS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class HasStartMarker(Protocol):
    """What can leave a marker of being open: an episode, or a part of one."""

    def _write_marker(self) -> None:
        """Record the marker, once."""


class BuffersSteps(Protocol):
    """Where steps gather until they are written together."""

    def write(self, *, wait: bool = True) -> None:
        """Write the buffered steps; without `wait`, return at once if another thread is writing."""


class Host(Protocol):
    """What the recorder needs of a session."""

    run_id: str
    origin: SpanOrigin
    steps: str
    """How steps are written, where an episode does not say: spans, packed or auto."""

    def name_root(self, stated: Mapping[str, Any]) -> str:
        """The name of an episode's root of which this was stated."""

    @property
    def closed(self) -> bool:
        """Whether the session is closed, so that nothing more is recorded."""

    @property
    def take(self) -> Callable[[RecordingSpan], None]:
        """Take an ended span."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault and log the first of its kind."""

    def samples(self, trace_id: int, group: str | None) -> bool:
        """Whether a new episode is among those that collectors get."""

    def opened(self, episode: HasStartMarker) -> int:
        """Take note of an episode that started; its index."""

    def finished(self, episode: HasStartMarker) -> None:
        """Take note of its end."""

    def joined(self, part: HasStartMarker) -> None:
        """Take note that another process's episode goes on here."""

    def left(self, part: HasStartMarker) -> None:
        """Take note of the end of that part."""

    @property
    def stepped(self) -> Callable[[], int]:
        """Returns the next step's span id."""

    def packed(self, steps: int) -> None:
        """Take note of so many steps that were no handles of their own."""

    def paid_by(self, document: str) -> None:
        """Take note of a reward spec whose rewards are recorded, by its document."""

    def gathers(self, steps: BuffersSteps) -> None:
        """Take note that steps gather, which are to be written soon."""


class Handle:
    """What episodes, steps and calls share: a span, a place in the context, and an end."""

    # What few handles ever have is the class's: steps are made in the training loop's time.
    _outer: object = None
    _attached: tuple[Token[Context], Any] | None

    def __init__(self, host: Host | None, span: RecordingSpan | None) -> None:
        self._host = host
        self._span = span
        self._attached = None

    def __bool__(self) -> bool:
        """Whether the handle records, or recorded, anything at all."""
        return self._span is not None

    def __repr__(self) -> str:
        if self._span is None:
            return f"<{type(self).__name__}: inert>"
        return (
            f"<{type(self).__name__} {self._span.name!r} {self.span_id}, {'ended' if self.ended else 'open'}>"
        )

    @property
    def span(self) -> trace.Span:
        """The OpenTelemetry span, for attributes, events and links of the user's own."""
        return self._span or trace.INVALID_SPAN

    @property
    def span_id(self) -> str:
        """The span's id, 16 hex digits; empty for an inert handle."""
        return f"{self._span.identity.span_id:016x}" if self._span else ""

    @property
    def ended(self) -> bool:
        """Whether the handle takes nothing more."""
        span = self._span
        return span is None or span._end_time is not None

    def _takes(self, what: str) -> bool:
        span = self._span
        if span is None:
            return False
        if span._end_time is None:
            return True
        self._fault("after_end", f"{what} after the end of {span.name!r}")
        return False

    def _fault(self, kind: str, detail: str = "") -> None:
        if self._host is not None:
            self._host.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        """Count that a call raised, and note it on the span while that is open."""
        span = self._span
        failed(self._host if span is None or span._end_time is not None else span, what, error)

    def _enclose(self, outer: object) -> None:
        """Remember what was current, but not this handle itself or what is in its block."""
        if outer is not self and self._attached is None:
            self._outer = outer

    def __enter__(self) -> Self:
        try:
            if self._span is not None:
                self._attached = (attach(self._as_context()), self._attached)
        except Exception as error:
            self._failed(f"{type(self).__name__}.__enter__", error)
        return self

    def _as_context(self) -> Context:
        """The context inside the block."""
        return trace.set_span_in_context(self.span)

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        if self._attached is not None:
            token, self._attached = self._attached
            detach(token)
        if not self.ended:
            self._leave(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace_)

    def _leave(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._break_off(error)
        except Exception as failure:
            self._failed(type(self).__name__, failure)

    def _break_off(self, error: BaseException) -> None:
        if isinstance(error, _ABORTS):
            self._finish(status="aborted", stop_reason=qualified_name(error))
        else:
            assert self._span is not None
            self._span.record_exception(error)
            self._finish(status="error", error_type=qualified_name(error), error_message=error_message(error))

    def _finish(self, **how: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} can't end as {how}")


def document_of(result: object) -> str:
    """The document of the reward spec whose result this is; empty for anything else."""
    found = getattr(result, "document", "") if hasattr(type(result), "reward") else ""
    return found if isinstance(found, str) else ""


def detach(token: Token[Context]) -> None:
    """Put the context back, unless this is another context: an async generator's end may run anywhere."""
    with suppress(Exception):  # what has ended is not current, even where it still stands there
        restore(token)


class Measured(Handle):
    """A handle that is scored, and takes metrics and metadata of the user's own."""

    _scoring: str = ""
    """The span of its last scoring, 16 hex digits."""

    def _latest(self, scoring: Reward) -> Reward:
        """A scoring that is paid, as of now where another was recorded after it: the last is what counts."""
        if not self._scoring or scoring.span_id == self._scoring:
            return scoring
        return replace(scoring, start_time=None, end_time=None)

    def _scored_by(self, scoring: RecordingSpan, document: str = "") -> None:
        """Take note of a scoring of it that was recorded, and of the spec that scored."""
        self._scoring = f"{scoring.identity.span_id:016x}"
        if document:
            cast(Host, self._host).paid_by(document)

    _metrics: dict[str, float] | None = None
    _metadata: dict[str, Any] | None = None
    _raw_names: dict[str, str] | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The user's own numbers so far, by name as recorded."""
        return dict(self._metrics or {})

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's own facts so far, by name as recorded."""
        return dict(self._metadata or {})

    @quiet
    def metric(self, name: str, value: float) -> None:
        """Record a number of your own; a name is kept in lower case letters, digits and underscores."""
        if not self._takes("metric"):
            return
        found = number(value)
        if found is None:
            cast(RecordingSpan, self._span).fault("metric_invalid", f"{name} is {value!r:.200}")
        elif (key := self._own_name(a.METRIC, name)) is not None:
            self._metrics = self._metrics or {}
            self._metrics[key] = found
            span = cast(RecordingSpan, self._span)
            if span.admits(attribute := f"{a.METRIC}.{key}"):
                span.encoded[attribute] = found

    @quiet
    def set_metadata(self, name: str, value: object) -> None:
        """Record a fact of your own; names as for `metric`."""
        if self._takes("set_metadata") and (key := self._own_name(a.METADATA, name)) is not None:
            span = cast(RecordingSpan, self._span)
            kept = _listed(span.checked(plain, value))
            kept = span.without_secrets(f"{a.METADATA}.{key}", kept)
            self._metadata = self._metadata or {}
            self._metadata[key] = kept
            span._keep(f"{a.METADATA}.{key}", kept)

    @quiet
    def _describe(self, metadata: object, metrics: object) -> None:
        """Take several facts and numbers."""
        span = self._span
        if span is None:
            return
        for name, fact in span.checked(mapped, "metadata", metadata).items():
            self.set_metadata(name, fact)
        for name, metric in span.checked(mapped, "metrics", metrics).items():
            self.metric(name, metric)

    def _own_name(self, prefix: str, name: object) -> str | None:
        """The name as recorded; None where another name of the user's already became it."""
        key = name_key(name)
        self._raw_names = self._raw_names or {}
        given = text(name, [])
        raw = self._raw_names.setdefault(f"{prefix}.{key}", given)
        if raw == given and key:
            return key
        cast(RecordingSpan, self._span).fault("name_collision", f"{given} and {raw}")
        return None


def _listed(value: Any) -> Any:
    """A fact as reading gives it back: arrays as lists."""
    return value.tolist() if hasattr(value, "tolist") else value
