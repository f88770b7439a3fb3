"""The data of a span of ours, readable by any exporter."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes
from typing_extensions import Self

from mttp.codec import kinds
from mttp.codec.pending import Pending, delivered, encoded
from mttp.codec.pending import weight as pending_weight
from mttp.codec.plain import Faults
from mttp.codec.profiles import Profile, arrays
from mttp.model import ids, spans
from mttp.otlp.frames import UNFIT, Frame, rare_fields
from mttp.otlp.json import RareFields
from mttp.otlp.spans.conversion import as_tuple
from mttp.otlp.spans.ended import EndedSpan
from mttp.otlp.spans.printing import printed
from mttp.otlp.spans.records import KINDS, STATUSES, event_record, flags, link_record
from mttp.otlp.spans.size_estimate import SPAN_BYTES, weight
from mttp.otlp.spans.trace import SpanOrigin, Trace
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["UNSET", "SpanData"]

UNSET = Status(StatusCode.UNSET)
"""The status of most spans."""


class SpanData(EndedSpan):
    """
    The attributes, times and identity of one span of ours, in the form that the encoder takes.

    `encoded` holds the attributes, and `pending` those that are encoded later, by key of `codec.pending`.
    `values` holds all attributes, encoded.
    """

    _instrumentation_info = None

    # Defaults are class attributes, because spans are created in the training loop.
    _kind = SpanKind.INTERNAL
    _status = UNSET
    _context: SpanContext | None = None
    _events: Sequence[Event] = ()
    _links: Sequence[Link] = ()
    _faults: Faults | None = None
    _omissions: list[str] | None = None
    _user_keys: set[str] | None = None
    pending: dict[str, Any] | None = None
    _size: int | None = None
    count = 1
    """Number of spans that it represents; a batch of steps represents several."""
    is_timed = True
    """Whether start and end are its own, and not those of the whole episode or batch."""

    _name: str
    _trace: Trace
    _parent: SpanContext | None
    _span_id: int
    encoded: dict[str, Any]
    _start_time: int
    _end_time: int | None

    @property
    def trace_id(self) -> int:  # type: ignore[override]  # an attribute of other spans
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
    def size(self) -> int:  # type: ignore[override]  # an attribute of other spans
        """Approximate size of the ended span in a file, in bytes."""
        if self._size is None:
            self._size = self._weigh()
        return self._size

    @property
    def is_sampled(self) -> bool:
        """Whether its trace is sampled."""
        return self._trace.flags.sampled

    @property
    def of_episode(self) -> bool:
        """Whether it belongs to an episode."""
        return self.has(a.EPISODE_ID)

    @property
    def is_last(self) -> bool:
        """Whether it is the last span of its trace, or of this process's part of the trace."""
        if self._parent is None or self._name is names.STEP:
            return self._parent is None
        return kinds.of(self._name, self.encoded, is_root=False) == names.SEGMENT

    @property
    def started(self) -> int:
        """Start time, in nanoseconds since the Unix epoch."""
        return self._start_time

    @property
    def values(self) -> dict[str, Any]:
        """All attributes, encoded; the caller may change the mapping."""
        pending = self.pending
        if pending is not None:
            self.encoded.update(encoded(pending))
            if self.pending is pending:  # else another thread has added attributes
                self.pending = None
        return self.encoded

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self.encoded = values

    def set_pending(self, key: str, given: object) -> None:
        """Set an attribute or a group that is encoded later; `key` is one of `codec.pending`."""
        pending = self.pending
        self.pending = {key: given} if pending is None else {**pending, key: given}

    def has(self, key: str) -> bool:
        """Whether an attribute, or a group of attributes, is set, pending or encoded."""
        pending = self.pending  # read first: another thread may encode it now
        return (pending is not None and key in pending) or key in self.encoded

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

    def as_record(self, profile: Profile = arrays) -> spans.SpanRecord:
        """Return the span as a record, with attributes converted by `profile`."""
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
            trace_state=self._trace_state,
            flags=flags(self._parent),
            scope=self._trace.origin.record,
        )

    @property
    def _trace_state(self) -> str:
        """Its trace state as in a header; only sampling sets one."""
        state = None if self._context is None else self._context.trace_state
        return state.to_header() if state else ""

    @property
    def scope(self) -> spans.Scope:
        """Its scope and resource, as in records."""
        return self._trace.origin.record

    def facts(self) -> tuple[dict[str, Any], Pending | None]:
        """Return a copy of the encoded attributes, and the pending ones."""
        pending = self.pending  # read first: another thread may encode it now
        return self.encoded.copy(), pending

    def frame(self) -> Frame | None:
        """Return the ended span as a frame; None if no frame holds its values."""
        pending = self.pending  # read first: another thread may encode it now
        return self._frame(self.encoded, pending)

    def _frame(self, attributes: Mapping[str, Any], pending: Pending | None) -> Frame | None:
        parent, rest = self._parent, self._rest()
        try:
            return Frame.of(
                self.trace_id,
                (
                    self._span_id,
                    0 if parent is None else parent.span_id,
                    self._name,
                    1 if self._kind is SpanKind.INTERNAL else KINDS[self._kind],
                    self._start_time,
                    self._start_time if self._end_time is None else self._end_time,
                    flags(parent),
                    attributes,
                    pending,
                    None if rest is None else rare_fields(rest),
                ),
                scope=self._trace.origin.number,
                is_last=self.is_last,
                of_episode=a.EPISODE_ID in self.encoded,
            )
        except UNFIT:
            return None

    def _rest(self) -> RareFields | None:
        """Return events, links, status and trace state; None for a span without them."""
        state = self._trace_state
        if not self._events and not self._links and self._status is UNSET and not state:
            return None
        return RareFields(
            list(map(event_record, self._events)),
            list(map(link_record, self._links)),
            STATUSES[self._status.status_code],
            self._status.description or "",
            state,
        )

    def _weigh(self) -> int:
        values, pending = self.facts()
        size = SPAN_BYTES + weight(values)
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
        """Create an ended span, without calling observers and the sink."""
        span = cls.__new__(cls)
        span._name, span.encoded, span._trace, span._parent = name, attributes, trace, parent
        span._span_id = span_id or ids.span_id()
        span._start_time, span._end_time = start_time, end_time
        return span

    def with_values(self, values: dict[str, Any]) -> Self:
        """Return a copy of this ended span with other attributes."""
        shown = copy.copy(self)
        shown.encoded, shown.pending = values, None
        return shown

    def with_origin(self, origin: SpanOrigin) -> Self:
        """Return a copy of this ended span with another resource and scope."""
        shown = copy.copy(self)
        shown._trace = Trace(self.trace_id, origin, self._trace, flags=self._trace.flags)
        return shown
