"""The span of mttp, which implements OpenTelemetry's `Span`, and what a context may hold after its end."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, cast

from msgspec import Raw
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.util.types import AnyValue, Attributes
from typing_extensions import Self

from mttp.codec import kinds, pictures, tokens
from mttp.codec.pending import TOKENS, TRANSITIONS, encoded, is_pending
from mttp.codec.plain import Faults, nanoseconds, plain, scalar_text, text
from mttp.codec.profiles import arrays
from mttp.model import clock, ids
from mttp.otlp import step_columns
from mttp.otlp.frames import IF_TAKEN, NEVER, WHEREVER, Frame
from mttp.otlp.span_fields import flags
from mttp.otlp.spans.conversion import (
    as_tuple,
    event_fields,
    frozen,
    is_context,
    link_fields,
    pairs,
    printed,
)
from mttp.otlp.spans.exceptions import error_message, qualified_name
from mttp.otlp.spans.guarding import failed, quiet
from mttp.otlp.spans.trace import AUTO, SPANS, SpanObserver, Trace
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["MAX_USER_ATTRIBUTES", "AmbientSpan", "Outlasted", "RecordingSpan"]

MAX_USER_ATTRIBUTES = 64
"""Maximum number of user attributes of a span; most SDKs drop attributes beyond 128."""

_OURS = "mttp."
_LAST_TIME = 2**63
_DOCUMENTS = frozenset({a.OBSERVATION_VALUE, a.ACTION_VALUE})


UNSET = Status(StatusCode.UNSET)
"""The status of most spans."""


class Outlasted(Span):
    """A span that stands for what encloses its block, wherever it is still current after its end."""

    outside: Context | None = None
    """
    The context around its block, once it has ended while a context may hold it; else None.

    Any tracer or propagator asks the current span for its context, so that it gets that of the span which is
    current in `outside`.
    """


class AmbientSpan(NonRecordingSpan, Outlasted):
    """The current span of another process, in the block of a remote episode."""

    def get_span_context(self) -> SpanContext:
        """Return its span context; after the block, that of what encloses the block."""
        if self.outside is None:
            return super().get_span_context()
        return get_current_span(self.outside).get_span_context()


class RecordingSpan(Outlasted, ReadableSpan):
    """
    A span of mttp from its start to its end.

    Its methods never raise: errors are counted as faults of the span and of its session.
    `encoded` holds the attributes, some of them as `codec.pending` encodes them later; `values` encodes them.
    """

    # Defaults are class attributes, because spans are created in the training loop.
    _instrumentation_info = None
    _kind = SpanKind.INTERNAL
    _status = UNSET
    _context: SpanContext | None = None
    _events: Sequence[Event] = ()
    _links: Sequence[Link] = ()
    _faults: Faults | None = None
    _omissions: list[str] | None = None
    _user_keys: set[str] | None = None
    count = 1
    """Number of spans that it represents."""
    is_timed = True
    """Whether start and end are its own, and not those of the whole episode or batch."""

    def __init__(
        self,
        name: str,
        attributes: dict[str, Any],
        trace: Trace,
        parent: SpanContext | None = None,
        *,
        span_id: int = 0,
        start_time: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        above: Span | None = None,
    ) -> None:
        """
        Start a span now, or at `start_time` in nanoseconds since the Unix epoch, as a child of `parent`.

        `above` is the parent's span if the caller has it; observers get it in their context.
        """
        self._name = name
        self.encoded = attributes
        self._trace = trace
        self._parent = parent
        self._span_id = span_id or ids.span_id()
        self._is_open = True
        self._end_time: int | None = None
        if kind is not SpanKind.INTERNAL:
            self._kind = kind
        if links:
            self._links = list(links)
        moment = None if start_time is None else self._time(start_time)
        self._start_time: int = trace.offset + clock.monotonic() if moment is None else moment
        if trace.origin.observers is not None:
            trace.origin.observers.started(self, self._around(above))

    def get_span_context(self) -> SpanContext:
        """Return its span context; once it has ended where it is still current, that of what encloses it."""
        return self.identity if self.outside is None else get_current_span(self.outside).get_span_context()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # What was recorded.

    @property
    def trace_id(self) -> int:
        """Id of its trace."""
        return self._trace.trace_id

    @property
    def identity(self) -> SpanContext:
        """Its span context, created on first use."""
        if self._context is None:
            trace = self._trace
            self._context = SpanContext(
                trace.trace_id, self._span_id, is_remote=False, trace_flags=trace.flags
            )
        return self._context

    @property
    def started(self) -> int:
        """Start time, in nanoseconds since the Unix epoch."""
        return self._start_time

    @property
    def values(self) -> dict[str, Any]:
        """All attributes, encoded; the caller may change the mapping."""
        attributes = self.encoded
        for key, value in attributes.copy().items():
            if is_pending(key, value):
                attributes.update(encoded({key: value}))
                if key in (TOKENS, TRANSITIONS):
                    attributes.pop(key, None)  # another thread may have removed it
        return attributes

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self.encoded = values

    def set_pending(self, key: str, given: Any) -> None:
        """Set an attribute or a group that is encoded later, see `codec.pending`."""
        self.encoded[key] = Raw(given) if key in _DOCUMENTS else given

    def has(self, key: str) -> bool:
        """Whether an attribute, or a group of attributes, is set, pending or encoded."""
        return key in self.encoded

    @property
    def faults(self) -> Faults:
        """Faults of recorded values, as `kind: detail`."""
        if self._faults is None:
            self._faults = []
        return self._faults

    @property
    def omissions(self) -> list[str]:
        """Omitted attributes, as `attribute: reason`."""
        if self._omissions is None:
            self._omissions = []
        return self._omissions

    def frame(self) -> Frame:
        """Return the span as a frame; one that has not ended ends when it starts."""
        parent, state, context = self._parent, "", self._context
        if context is not None and context.trace_state:
            state = context.trace_state.to_header()
        return Frame.of(
            self._trace.trace_id,
            (
                self._span_id,
                0 if parent is None else parent.span_id,
                self._name,
                1 if self._kind is SpanKind.INTERNAL else self._kind.value + 1,
                self._start_time,
                self._start_time if self._end_time is None else self._end_time,
                flags(parent),
                self.encoded,
                self._rare(state),
            ),
            scope=self._trace.origin.number,
            is_last=parent is None or self._is_segment(),
            of_episode=a.EPISODE_ID in self.encoded,
            is_sampled=self._trace.flags.sampled,
            columns=self._columns() if self._name == names.STEP else NEVER,
        )

    def _is_segment(self) -> bool:
        return self._name is not names.STEP and (
            kinds.of(self._name, self.encoded, is_root=False) == names.SEGMENT
        )

    def _rare(self, state: str) -> tuple[Any, ...] | None:
        """Return events, links, status and trace state; None for a span without them."""
        if not self._events and not self._links and self._status is UNSET and not state:
            return None
        return (
            list(map(event_fields, self._events)),
            list(map(link_fields, self._links)),
            self._status.status_code.value,
            self._status.description or "",
            state,
            *(0, 0, 0),
        )

    def _columns(self) -> int:
        """
        Return whether columns can hold the step.

        It stays a span if others may refer to it, because it has children or its id is known, and if it has
        tokens, events, links or an error.
        """
        trace, attributes = self._trace, self.encoded
        if trace.steps == SPANS or self._context is not None or trace.origin.observers is not None:
            return NEVER
        is_early = trace.steps == AUTO and attributes[a.STEP_INDEX] < step_columns.SPAN_STEPS
        if is_early and not trace.of_environment:
            return NEVER
        if a.TOKEN_ENCODING in attributes or TOKENS in attributes or self._events or self._links:
            return NEVER
        if self._status.status_code is not StatusCode.UNSET:
            return NEVER
        return IF_TAKEN if is_early else WHEREVER

    # The interface of `ReadableSpan`.

    @property
    def attributes(self) -> Attributes:
        """All attributes, in OpenTelemetry's types."""
        values = dict(self.values)  # a copy: another thread may add attributes
        return MappingProxyType({key: as_tuple(value) for key, value in arrays(values).items()})

    @property
    def resource(self) -> Resource:
        """The resource of the session."""
        return self._trace.origin.resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        """The scope of mttp, with the version of the convention."""
        return self._trace.origin.scope

    @property
    def dropped_attributes(self) -> int:
        """Always 0: rejected attributes are listed in `mttp.faults`."""
        return 0

    dropped_events = dropped_attributes
    dropped_links = dropped_attributes

    @property
    def context(self) -> SpanContext:
        """Its span context."""
        return self.identity

    def to_json(self, indent: int | None = 4) -> str:
        """Return the span as JSON text like the SDK, with bytes as base64."""
        return printed(self, indent)

    # The interface of `Span`.

    def is_recording(self) -> bool:
        """Whether the span has not ended."""
        return self._end_time is None

    @quiet
    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set a user attribute; a name that starts with `mttp.` is a fault."""
        if self._takes("set_attribute"):
            self._set(key if isinstance(cast(object, key), str) else "", value)

    @quiet
    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set user attributes; a name that is not text is converted with `str`."""
        if self._takes("set_attributes"):
            for key, value in self.checked(pairs, "attributes", attributes):
                self._set(key, value)

    def _set(self, key: str, value: object) -> None:
        if not key:
            self.fault("attributes_refused", "a name must be nonempty text")
        elif key.startswith(_OURS):
            self.fault("attributes_refused", f"{key} is reserved for mttp")
        else:
            self._keep(self._text(key), value)

    def _keep(self, key: str, value: object) -> None:
        if self.admits(key):
            copy = self.checked(plain, value)
            is_secret = self._trace.origin.secrets.names(key)
            self.encoded[key] = self.without_secrets(key, copy) if is_secret else copy

    def without_secrets(self, key: str, value: Any) -> Any:
        """Return the value without secrets; each one is listed in the omissions."""
        hidden: list[str] = []
        copy = self._trace.origin.secrets.hide(key, value, hidden)
        if hidden:
            self.omissions.extend(hidden)
        return copy

    def bounded(self, key: str, value: Any) -> Any:
        """Return content in which a picture that the trace has already, or that is too large, is a digest."""
        if type(value) is str and len(value) < pictures.FEWEST:
            return value
        trace = self._trace
        trace.pictures = {} if trace.pictures is None else trace.pictures
        place = self._span_id, key
        return pictures.bounded(key, value, trace.pictures, self.omissions, place=place)

    def admits(self, key: str) -> bool:
        """Whether a user attribute is already set, or there is space for it; if not, count a fault."""
        if self._user_keys is None:
            self._user_keys = set()
        if key not in self._user_keys and len(self._user_keys) >= MAX_USER_ATTRIBUTES:
            self.fault("attributes_refused", f"{key} is beyond {MAX_USER_ATTRIBUTES}")
            return False
        self._user_keys.add(key)
        return True

    @quiet
    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event; `timestamp` is in nanoseconds since the Unix epoch, now by default."""
        if self._takes("add_event"):
            moment = None if timestamp is None else self._time(timestamp)
            when = self._trace.now() if moment is None else moment
            event = Event(self._text(name), self._frozen(attributes), when)
            self._events = self._events or []
            cast("list[Event]", self._events).append(event)

    @quiet
    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link; one with an invalid context needs attributes or a trace state."""
        if not self._takes("add_link"):
            return
        if not is_context(context):
            self.fault("link_invalid", f"{scalar_text(context):.80} is not a span context")
        elif context.is_valid or attributes or context.trace_state:
            self._links = self._links or []
            cast("list[Link]", self._links).append(Link(context, self._frozen(attributes)))

    def _frozen(self, attributes: Attributes) -> Mapping[str, Any]:
        """Return attributes of an event or a link as an immutable mapping."""
        return MappingProxyType(self.checked(frozen, attributes))

    def _text(self, value: object) -> str:
        return cast(str, self.checked(text, value))

    @quiet
    def update_name(self, name: str) -> None:
        """Rename the span, and record its type as an attribute."""
        if self._takes("update_name"):
            self._record_type(self._name)
            self._name = self._text(name)

    def _record_type(self, name: str) -> None:
        """Record the type of a span of this name as an attribute, for readers."""
        self.values.setdefault(a.SPAN_TYPE, kinds.named(name))

    @quiet
    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final, and UNSET has no effect."""
        if not self._takes("set_status") or self._status.status_code is StatusCode.OK:
            return
        if isinstance(status, Status):
            code, description = status.status_code, status.description
        else:
            code = status
        if not isinstance(code, StatusCode):
            self.fault("status_invalid", f"{scalar_text(code):.80} is not a StatusCode")
        elif code is not StatusCode.UNSET:
            self._status = Status(code, None if description is None else self._text(description))

    @quiet
    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,  # noqa: ARG002 - part of OpenTelemetry's signature
    ) -> None:
        """Record an exception as an event; `escaped` is obsolete and ignored."""
        if not self._takes("record_exception"):
            return
        if not isinstance(cast(object, exception), BaseException):
            self.fault("exception_invalid", f"{scalar_text(exception):.80} is not an exception")
            return
        described = {
            a.EXCEPTION_TYPE: qualified_name(exception),
            a.EXCEPTION_MESSAGE: error_message(exception),
            a.EXCEPTION_STACKTRACE: "".join(traceback.format_exception(exception)),
        }
        self.add_event("exception", described | self.checked(frozen, attributes), timestamp)

    def forget(self, keys: frozenset[str]) -> None:
        """Remove attributes, before they are recorded again."""
        is_pending = TOKENS in self.encoded and not keys.isdisjoint(tokens.KEYS)
        values = self.values if is_pending else self.encoded
        for key in keys & values.keys():
            del values[key]

    def fail(self, error_type: str, message: str) -> None:
        """Mark the span as failed; a status OK is kept."""
        self.values[a.ERROR_TYPE] = self._text(error_type)
        if self._status.status_code is not StatusCode.OK:
            self._status = Status(StatusCode.ERROR, self._text(message) or None)

    @quiet
    def end(self, end_time: int | None = None) -> None:
        """End the span; later calls count a fault."""
        self.conclude(end_time)

    def conclude(self, end_time: int | None = None) -> None:
        """End the span, also if `end` was replaced by a subclass or a caller."""
        try:
            del self._is_open  # atomic, so that only one of two threads ends the span
        except AttributeError:
            self._trace.fault("after_end", "end on a span that has ended")
            return
        self.seal(end_time)

    def end_at_once(self) -> None:
        """End the span, which has no duration, a microsecond after its start."""
        self.conclude(self._start_time + clock.MOMENT)

    def seal(self, end_time: int | None = None) -> None:
        """Set the end and the final attributes, and pass the span to observers and the sink."""
        trace = self._trace
        moment = None if end_time is None else self._time(end_time)
        ended = trace.offset + clock.monotonic() if moment is None else moment
        if ended < self._start_time:
            if moment is not None:
                self.fault("time_invalid", "the end is before the start")
            ended = self._start_time
        if self._faults:
            self.encoded[a.FAULTS] = list(dict.fromkeys(self._faults))
        if self._omissions:
            earlier = self.encoded.get(a.OMISSIONS) or ()
            self.encoded[a.OMISSIONS] = list(dict.fromkeys([*earlier, *self._omissions]))
        self._end_time = ended
        span = self if self.outside is None else self._inside()
        if trace.origin.observers is not None:
            span._show_end(trace.origin.observers)
        trace.ended(span)

    def _inside(self) -> Self:
        """Return a copy to be written, for which nothing stands."""
        span = object.__new__(type(self))
        span.__dict__.update(self.__dict__)
        del span.outside
        return span

    def _show_end(self, observers: SpanObserver) -> None:
        """Call the observers; some span processors rename ended spans, which is not allowed."""
        name = self._name
        observers.ending(self)
        observers.ended(self)
        if self._name is not name:
            self._record_type(name)
            self._name = text(self._name, [])

    def _around(self, above: Span | None) -> Context:
        """Return the current context with the parent as its current span."""
        around = Context(get_current())  # steps keep their context as a plain dict
        here, parent = get_current_span(around), self._parent
        if parent is None:
            return around if here is INVALID_SPAN else set_span_in_context(INVALID_SPAN, around)
        if here.get_span_context() == parent:
            return around
        if above is None or above.get_span_context() != parent:
            above = NonRecordingSpan(parent)
        return set_span_in_context(above, around)

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.is_recording():
            self.record_exception(error)
            self.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error_message(error)}")
        self.end()

    # Faults.

    def _time(self, value: object) -> int | None:
        """Check a time from a caller; return None and count a fault if it is invalid."""
        if type(value) is int and 0 <= value < _LAST_TIME:  # the usual case
            return value
        moment: int | None = self.checked(nanoseconds, value)
        return moment

    def checked(self, convert: Any, *args: Any, **kwargs: Any) -> Any:
        """Return `convert(*args, faults)`, and count its faults."""
        faults: Faults = []
        result = convert(*args, faults, **kwargs)
        self.note(faults)
        return result

    def note(self, faults: Faults) -> None:
        """Record and count faults, given as `kind: detail`."""
        for fault in faults:
            kind, _, detail = fault.partition(": ")
            self.fault(kind, detail)

    def fault(self, kind: str, detail: str = "") -> None:
        """Record and count a fault."""
        self.faults.append(f"{kind}: {detail}" if detail else kind)
        self._trace.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        """Count a call that raised, and record it on the span if it is open."""
        failed(self if self._end_time is None else self._trace, what, error)

    def _takes(self, what: str) -> bool:
        if self._end_time is None:
            return True
        self._trace.fault("after_end", f"{what} on a span that has ended")
        return False
