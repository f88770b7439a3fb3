"""The trace to which a span is recorded: its identity, clock, origin and sink."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import TraceFlags

from mttp.codec.plain import text
from mttp.codec.secrets import USUAL, Secrets
from mttp.model import spans
from mttp.model.clock import Clock, offset
from mttp.otlp.frames import Frame, number_of

if TYPE_CHECKING:
    from mttp.otlp.spans.recording_span import RecordingSpan

__all__ = [
    "AUTO",
    "PACKED",
    "SPANS",
    "STEP_MODES",
    "SAMPLED",
    "SpanObserver",
    "SpanOrigin",
    "SpanSink",
    "Ended",
    "Trace",
]

SPANS, PACKED, AUTO = STEP_MODES = ("spans", "packed", "auto")
"""How steps are exported: as spans, as columns if possible, or as the transport prefers."""
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
"""The flags of a sampled trace."""


class Ended(Protocol):
    """An ended span, or several as one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def count(self) -> int:
        """Number of spans that it represents."""

    def frame(self) -> Frame:
        """Return it as a frame."""


class SpanSink(Protocol):
    """Takes ended spans, and counts faults."""

    def ended(self, span: Ended) -> None:
        """Take an ended span."""

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""


class SpanObserver(Protocol):
    """Is called when spans start and end, for the user's span processors."""

    def started(self, span: RecordingSpan, context: Context | None) -> None:
        """Called when a span has started, with its parent context."""

    def ending(self, span: RecordingSpan) -> None:
        """Called before a span has ended."""

    def ended(self, span: ReadableSpan) -> None:
        """Called when a span has ended."""


class SpanOrigin:
    """The resource, scope, observers and secrets that the spans of a session share."""

    __slots__ = ("_others", "number", "observers", "record", "resource", "scope", "secrets")

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
        self.number = number_of(self.record)
        """Stands for its scope in frames."""
        self._others: dict[InstrumentationScope, SpanOrigin] = {}

    def of_library(self, scope: InstrumentationScope) -> SpanOrigin:
        """Return the origin of another library's spans in the session."""
        if scope not in self._others:
            self._others[scope] = SpanOrigin(self.resource, scope)
        return self._others[scope]


class Trace(Clock):
    """One trace in this process: its id, flags, clock, origin and sink."""

    flags: TraceFlags
    identity: Mapping[str, Any] = MappingProxyType({})
    """Attributes that all of its spans have."""
    steps: str = SPANS
    """How its steps are exported, one of STEP_MODES."""
    pictures: dict[str, object] | None = None
    """The place of each picture in its content, by digest."""
    of_environment = False
    """Whether its steps are those of an environment, whose span ids are rarely used."""

    def __init__(
        self,
        trace_id: int,
        origin: SpanOrigin,
        sink: SpanSink,
        *,
        flags: TraceFlags = SAMPLED,
        clock: Clock | None = None,
    ) -> None:
        """Without `clock`, time is the wall clock now plus monotonic time."""
        self.offset = offset() if clock is None else clock.offset
        self.trace_id = trace_id
        self.origin = origin
        self.sink = sink
        self.flags = flags

    def ended(self, span: Ended) -> None:
        """Pass an ended span to the sink."""
        self.sink.ended(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self.sink.fault(kind, detail)
