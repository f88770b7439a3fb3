"""A span while it is recorded: a real OpenTelemetry span, light, and readable by any exporter."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, cast

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
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.util.types import AnyValue, Attributes
from typing_extensions import Self

from mttp.codec import kinds
from mttp.codec.pending import Pending, delivered, encoded, names_of
from mttp.codec.pending import weight as pending_weight
from mttp.codec.plain import Faults, nanoseconds, plain, scalar_text, text
from mttp.codec.profiles import Profile, arrays
from mttp.codec.secrets import USUAL, Secrets
from mttp.model import clock, ids, spans
from mttp.model.clock import Clock, offset
from mttp.otlp.json import RareFields
from mttp.otlp.spans.conversion import as_tuple, frozen, is_context, pairs
from mttp.otlp.spans.ended import EndedSpan
from mttp.otlp.spans.exceptions import error_message, qualified_name
from mttp.otlp.spans.guarding import failed, quiet
from mttp.otlp.spans.printing import printed
from mttp.otlp.spans.records import KINDS, STATUSES, event_record, flags, link_record
from mttp.otlp.spans.size_estimate import SPAN_BYTES, weight
from mttp.semconv import attributes as a

__all__ = [
    "AUTO",
    "PACKED",
    "SPANS",
    "STEP_MODES",
    "MAX_USER_ATTRIBUTES",
    "SAMPLED",
    "RecordingSpan",
    "SpanObserver",
    "SpanOrigin",
    "SpanSink",
    "Trace",
]

SPANS, PACKED, AUTO = STEP_MODES = ("spans", "packed", "auto")
"""How steps are written: each as a span, in columns where that can be, or as the transport takes them."""
MAX_USER_ATTRIBUTES = 64
"""Attributes of the user's own that one span takes: spans of more than 128 lose some in most SDKs."""

_OURS = "mttp."
_LAST_TIME = 2**63
_UNSET = Status(StatusCode.UNSET)
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
"""The flags of a trace that collectors get."""


class SpanSink(Protocol):
    """Where spans go once they have ended."""

    def ended(self, span: RecordingSpan) -> None:
        """Take an ended span."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count and, the first time, log that something was wrong."""


class SpanObserver(Protocol):
    """Who looks on as spans start and end: the user's own span processors."""

    def started(self, span: RecordingSpan, context: Context | None) -> None:
        """See a span start, within that context."""

    def ending(self, span: RecordingSpan) -> None:
        """See a span that is about to have ended."""

    def ended(self, span: ReadableSpan) -> None:
        """See a span end."""


class SpanOrigin:
    """Who makes the spans of one session, in OpenTelemetry's types and in ours, and who looks on."""

    __slots__ = ("observers", "record", "resource", "scope", "secrets")

    def __init__(
        self,
        resource: Resource,
        scope: InstrumentationScope,
        observers: SpanObserver | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.secrets = USUAL if secrets is None else secrets
        self.resource = resource
        self.scope = scope
        self.observers = observers
        self.record = spans.Scope(
            name=text(scope.name, []),
            version=text(scope.version or "", []),
            schema_url=text(scope.schema_url or "", []),
            attributes=dict(scope.attributes or {}),
            resource=dict(resource.attributes),
            resource_schema_url=resource.schema_url,
        )


class Trace(Clock):
    """One trace, as this process adds to it: whose spans they are, what time it is, and where they go."""

    flags: TraceFlags
    identity: Mapping[str, Any] = MappingProxyType({})
    """Attributes of all its spans."""
    steps: str = SPANS
    """How its steps are written, one of STEP_MODES."""
    of_environment = False
    """Whether its steps are an environment's, which few refer to by their ids."""

    def __init__(
        self,
        trace_id: int,
        origin: SpanOrigin,
        sink: SpanSink,
        *,
        flags: TraceFlags = SAMPLED,
        clock: Clock | None = None,
    ) -> None:
        """By a clock of its own where none is given: the wall clock's time at its start counts."""
        self.offset = offset() if clock is None else clock.offset
        self.trace_id = trace_id
        self.origin = origin
        self.sink = sink
        self.flags = flags

    def ended(self, span: RecordingSpan) -> None:
        """Take a span that has ended."""
        self.sink.ended(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self.sink.fault(kind, detail)


class RecordingSpan(Span, EndedSpan):
    """
    One span of ours, from start to end: what was recorded, in the form in which the encoder takes it.

    `encoded` holds its attributes, numpy arrays and all, and `pending` those that are left to the encoder, as
    `codec.pending` has them. `values` holds all of them, encoded now.
    `identity` is its context, `started` its start in nanoseconds since the Unix epoch.
    `size` is roughly what it takes in a file, in bytes, known once it has ended.
    """

    _instrumentation_info = None

    # What few spans change is the class's: spans are made in the training loop's time.
    _kind = SpanKind.INTERNAL
    _status = _UNSET
    _context: SpanContext | None = None
    _events: Sequence[Event] = ()
    _links: Sequence[Link] = ()
    _faults: Faults | None = None
    _omissions: list[str] | None = None
    _user_keys: set[str] | None = None
    pending: dict[str, Any] | None = None
    size = 0
    count = 1
    """How many spans it stands for: each step that is in columns is one."""

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
        Start now, or at `start_time`, as a child of `parent` in that trace.

        Observers are shown `above` as the parent's span, where it is that.
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
        given = None if start_time is None else self._time(start_time)
        self._start_time: int = trace.offset + clock.monotonic() if given is None else given
        if trace.origin.observers is not None:
            self._show_start(trace.origin.observers, above)

    @property
    def trace_id(self) -> int:  # type: ignore[override]  # other spans are given theirs
        """Its trace."""
        return self._trace.trace_id

    @property
    def identity(self) -> SpanContext:
        """Its span context, made on first use."""
        if self._context is None:
            trace = self._trace
            self._context = SpanContext(
                trace.trace_id, self._span_id, is_remote=False, trace_flags=trace.flags
            )
        return self._context

    @property
    def is_sampled(self) -> bool:
        """Whether collectors get it."""
        return self._trace.flags.sampled

    @property
    def started(self) -> int:
        """Its start, in nanoseconds since the Unix epoch."""
        return self._start_time

    @property
    def values(self) -> dict[str, Any]:
        """All attributes as recorded; the mapping may be changed."""
        pending = self.pending
        if pending is not None:
            self.encoded.update(encoded(pending))
            if self.pending is pending:  # else another thread left more meanwhile
                self.pending = None
        return self.encoded

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self.encoded = values

    def leave(self, key: str, given: object) -> None:
        """Leave an attribute, or a kind of attributes, to the encoder: a key of `codec.pending`."""
        pending = self.pending
        self.pending = {key: given} if pending is None else {**pending, key: given}

    def has(self, key: str) -> bool:
        """Whether it has an attribute, or a kind of attributes, that may be left to the encoder."""
        pending = self.pending  # in this order: another thread may ask for the values meanwhile
        return (pending is not None and key in pending) or key in self.encoded

    @property
    def faults(self) -> Faults:
        """What was wrong with what was recorded, `kind: detail` each."""
        if self._faults is None:
            self._faults = []
        return self._faults

    @property
    def omissions(self) -> list[str]:
        """What was left out, and why."""
        if self._omissions is None:
            self._omissions = []
        return self._omissions

    # What a reader of the span sees.

    @property
    def attributes(self) -> Attributes:
        """The attributes in OpenTelemetry's types."""
        said = dict(self.values)  # a copy: another thread may add to it meanwhile
        return MappingProxyType({key: as_tuple(value) for key, value in arrays(said).items()})

    @property
    def resource(self) -> Resource:
        """Who runs the process."""
        return self._trace.origin.resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        """Who made the span: mttp, at which version of the convention."""
        return self._trace.origin.scope

    @property
    def dropped_attributes(self) -> int:
        """None are dropped: what is refused is said in `mttp.faults`."""
        return 0

    dropped_events = dropped_attributes
    dropped_links = dropped_attributes

    @property
    def context(self) -> SpanContext:
        """Identity for children and links."""
        return self.identity

    def get_span_context(self) -> SpanContext:
        """The same."""
        return self.identity

    def to_json(self, indent: int | None = 4) -> str:
        """The span as the SDK prints it, bytes as base64."""
        return printed(self, indent)

    def as_record(self, profile: Profile = arrays) -> spans.SpanRecord:
        """The span as a plain record, its attributes as `profile` delivers them."""
        return spans.SpanRecord(
            trace_id=f"{self.trace_id:032x}",
            span_id=f"{self._span_id:016x}",
            parent_id="" if self._parent is None else f"{self._parent.span_id:016x}",
            name=self._name,
            kind=KINDS[self._kind],
            start_time=self.started,
            end_time=self.started if self._end_time is None else self._end_time,
            attributes=delivered([self.facts()], profile)[0],
            status_code=STATUSES[self._status.status_code],
            status_message=self._status.description or "",
            events=[event_record(event) for event in self._events],
            links=[link_record(link) for link in self._links],
            flags=flags(self._parent),
            scope=self._trace.origin.record,
        )

    @property
    def scope(self) -> spans.Scope:
        """Who made it, as a record says it."""
        return self._trace.origin.record

    def facts(self) -> tuple[dict[str, Any], Pending | None]:
        """Its attributes, and those that are left to the encoder."""
        pending = self.pending  # in this order: another thread may ask for the values meanwhile
        return self.encoded.copy(), pending

    def row(self, parents: dict[int, tuple[int, int, SpanContext | None]]) -> tuple[Any, ...]:
        """
        The span as an encoder takes it: an `encoding.rows.Row`.

        In `parents` it keeps what is the same for the children of one span.
        """
        parent = self._parent
        found = parents.get(id(parent))
        if found is None:  # the parent is held, so that no other gets its place
            found = (0 if parent is None else parent.span_id, flags(parent), parent)
            parents[id(parent)] = found
        return (
            self._trace.origin.record,
            self.trace_id,
            self._span_id,
            found[0],
            self._name,
            1 if self._kind is SpanKind.INTERNAL else KINDS[self._kind],
            self._start_time,
            self._start_time if self._end_time is None else self._end_time,
            found[1],
            *self.facts(),
            self._rest(),
        )

    def _rest(self) -> RareFields | None:
        """Events, links and status, where it has any."""
        if not self._events and not self._links and self._status is _UNSET:
            return None
        return RareFields(
            list(map(event_record, self._events)),
            list(map(link_record, self._links)),
            STATUSES[self._status.status_code],
            self._status.description or "",
        )

    # What the owner of the span does.

    def is_recording(self) -> bool:
        """Whether the span still takes anything."""
        return self._end_time is None

    @quiet
    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set one attribute of the user's own; names that begin with `mttp.` are not."""
        if self._takes("set_attribute"):
            self._set(key if isinstance(cast(object, key), str) else "", value)

    @quiet
    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set attributes of the user's own; a name that is no text is set as what it prints as."""
        if self._takes("set_attributes"):
            for key, value in self.checked(pairs, "attributes", attributes):
                self._set(key, value)

    def _set(self, key: str, value: object) -> None:
        if not key:
            self.fault("attributes_refused", "a name has to be text, and not empty")
        elif key.startswith(_OURS):
            self.fault("attributes_refused", f"{key} is not the user's to set")
        else:
            self._keep(self._text(key), value)

    def _keep(self, key: str, value: object) -> None:
        if self.admits(key):
            kept = self.checked(plain, value)
            is_secret = self._trace.origin.secrets.names(key)
            self.encoded[key] = self.without_secrets(key, kept) if is_secret else kept

    def without_secrets(self, key: str, value: Any) -> Any:
        """A plain value without what looks like a secret in it, each of which is named."""
        hidden: list[str] = []
        kept = self._trace.origin.secrets.hide(key, value, hidden)
        if hidden:
            self.omissions.extend(hidden)
        return kept

    def admits(self, key: str) -> bool:
        """Whether there is space for one more attribute of the user's own, or it is there already."""
        if self._user_keys is None:
            self._user_keys = set()
        if key not in self._user_keys and len(self._user_keys) >= MAX_USER_ATTRIBUTES:
            self.fault("attributes_refused", f"{key} is beyond {MAX_USER_ATTRIBUTES}")
            return False
        self._user_keys.add(key)
        return True

    @quiet
    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add something that happened at one time."""
        if self._takes("add_event"):
            given = None if timestamp is None else self._time(timestamp)
            when = self._trace.now() if given is None else given
            event = Event(self._text(name), self._frozen(attributes), when)
            self._events = self._events or []
            cast("list[Event]", self._events).append(event)

    @quiet
    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Refer to another span; a link to no valid span is kept where it has attributes or a trace state."""
        if not self._takes("add_link"):
            return
        if not is_context(context):
            self.fault("link_invalid", f"{scalar_text(context):.80} is no span's context")
        elif context.is_valid or attributes or context.trace_state:
            self._links = self._links or []
            cast("list[Link]", self._links).append(Link(context, self._frozen(attributes)))

    def _frozen(self, attributes: Attributes) -> Mapping[str, Any]:
        """Attributes of an event or a link, frozen."""
        return MappingProxyType(self.checked(frozen, attributes))

    def _text(self, value: object) -> str:
        return cast(str, self.checked(text, value))

    @quiet
    def update_name(self, name: str) -> None:
        """Rename the span, which says its type itself from here on."""
        if self._takes("update_name"):
            self._say_type(self._name)
            self._name = self._text(name)

    def _say_type(self, name: str) -> None:
        """Say as what a span of that name is read."""
        self.values.setdefault(a.SPAN_TYPE, kinds.named(name))

    @quiet
    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; once OK it stays, and UNSET, or what is no status, changes nothing."""
        if not self._takes("set_status") or self._status.status_code is StatusCode.OK:
            return
        if isinstance(status, Status):
            code, description = status.status_code, status.description
        else:
            code = status
        if not isinstance(code, StatusCode):
            self.fault("status_invalid", f"{scalar_text(code):.80} is no StatusCode")
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
            self.fault("exception_invalid", f"{scalar_text(exception):.80} is no exception")
            return
        described = {
            a.EXCEPTION_TYPE: qualified_name(exception),
            a.EXCEPTION_MESSAGE: error_message(exception),
            a.EXCEPTION_STACKTRACE: "".join(traceback.format_exception(exception)),
        }
        self.add_event("exception", described | self.checked(frozen, attributes), timestamp)

    def forget(self, keys: frozenset[str]) -> None:
        """Drop what was recorded under these names, ahead of recording it anew."""
        pending = self.pending
        is_pending = pending is not None and not keys.isdisjoint(names_of(pending))
        said = self.values if is_pending else self.encoded
        for key in keys & said.keys():
            del said[key]

    def fail(self, error_type: str, message: str) -> None:
        """Mark the span as failed; a status of OK that the program set stays."""
        self.values[a.ERROR_TYPE] = self.checked(plain, error_type)
        if self._status.status_code is not StatusCode.OK:
            self._status = Status(StatusCode.ERROR, self.checked(plain, message) or None)

    @quiet
    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it on; only the first call counts."""
        self.conclude(end_time)

    def conclude(self, end_time: int | None = None) -> None:
        """End the span even where a subclass or a caller replaced `end`."""
        try:
            del self._is_open  # one step, so that of two threads only one ends the span
        except AttributeError:
            self._trace.fault("after_end", "end on a span that has ended")
            return
        self.seal(end_time)

    def seal(self, end_time: int | None = None) -> None:
        """End the span once: only the first call has an effect."""
        trace = self._trace
        given = None if end_time is None else self._time(end_time)
        ended = trace.offset + clock.monotonic() if given is None else given
        if ended < self._start_time:
            if given is not None:
                self.fault("time_invalid", "the end is before the start")
            ended = self._start_time
        if self._faults:
            self.encoded[a.FAULTS] = list(dict.fromkeys(self._faults))
        if self._omissions:
            stated = self.encoded.get(a.OMISSIONS) or ()
            self.encoded[a.OMISSIONS] = list(dict.fromkeys([*stated, *self._omissions]))
        self._end_time = ended
        self.size = self._weigh()
        if trace.origin.observers is not None:
            self._show_end(trace.origin.observers)
        trace.ended(self)

    def _show_end(self, observers: SpanObserver) -> None:
        """Show the user's own span processors that it has ended; some rename spans, against the rules."""
        name = self._name
        observers.ending(self)
        observers.ended(self)
        if self._name is not name:
            self._say_type(name)
            self._name = text(self._name, [])

    def _show_start(self, observers: SpanObserver, above: Span | None) -> None:
        observers.started(self, self._around(above))

    def _around(self, above: Span | None) -> Context:
        """The current context; in it, the span's parent is the current span."""
        around = Context(get_current())  # of its own type: steps keep theirs as plain copies
        here, parent = get_current_span(around), self._parent
        if parent is None:
            return around if here is INVALID_SPAN else set_span_in_context(INVALID_SPAN, around)
        if here.get_span_context() == parent:
            return around
        if above is None or above.get_span_context() != parent:
            above = NonRecordingSpan(parent)
        return set_span_in_context(above, around)

    def _weigh(self) -> int:
        said, pending = self.facts()
        size = SPAN_BYTES + weight(said)
        if pending is not None:
            size += pending_weight(pending)
        if not self._events and not self._links:
            return size
        marks = [mark.attributes for mark in self._events] + [mark.attributes for mark in self._links]
        return size + sum(SPAN_BYTES + weight(dict(attributes or {})) for attributes in marks)

    @classmethod
    def over(
        cls,
        name: str,
        attributes: dict[str, Any],
        trace: Trace,
        parent: SpanContext | None,
        *,
        span_id: int = 0,
        start_time: int,
        end_time: int,
    ) -> Self:
        """An ended span, which is neither shown to observers nor handed on."""
        span = cls.__new__(cls)
        span._name, span.encoded, span._trace, span._parent = name, attributes, trace, parent
        span._span_id = span_id or ids.span_id()
        span._start_time, span._end_time = start_time, end_time
        span.size = span._weigh()
        return span

    def with_values(self, values: dict[str, Any]) -> Self:
        """The same ended span with other attributes; the original stays as it is."""
        shown = copy.copy(self)
        shown.encoded, shown.pending = values, None
        return shown

    def with_origin(self, origin: SpanOrigin) -> RecordingSpan:
        """This ended span with another resource and scope."""
        shown = copy.copy(self)
        shown._trace = Trace(self.trace_id, origin, self._trace, flags=self._trace.flags)
        return shown

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.is_recording():
            self.record_exception(error)
            self.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error_message(error)}")
        self.end()

    # Faults.

    def _time(self, given: object) -> int | None:
        """A time that a caller gives; None, and a fault, where it is none."""
        if type(given) is int and 0 <= given < _LAST_TIME:  # nearly always
            return given
        found: int | None = self.checked(nanoseconds, given)
        return found

    def checked(self, convert: Any, *args: Any, **kwargs: Any) -> Any:
        """`convert(*args, faults)`, what is wrong noted on the span and counted in the session."""
        found: Faults = []
        result = convert(*args, found, **kwargs)
        self.note(found)
        return result

    def note(self, faults: Faults) -> None:
        """Keep and count faults, `kind: detail` each."""
        for fault in faults:
            kind, _, detail = fault.partition(": ")
            self.fault(kind, detail)

    def fault(self, kind: str, detail: str = "") -> None:
        """Keep and count one fault."""
        self.faults.append(f"{kind}: {detail}" if detail else kind)
        self._trace.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        """Count that a call raised, and note it while the span is open."""
        failed(self if self._end_time is None else self._trace, what, error)

    def _takes(self, what: str) -> bool:
        if self._end_time is None:
            return True
        self._trace.fault("after_end", f"{what} on a span that has ended")
        return False
