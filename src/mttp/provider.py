"""The tracer provider through which other instrumentations' spans reach the session that records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, sampling
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.util._decorator import _agnosticcontextmanager
from opentelemetry.util.types import Attributes

from mttp import ids
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError
from mttp.session import Session

__all__ = ["DelegatingProvider", "Mirror", "install", "mirror"]


class DelegatingProvider(TracerProvider):
    """
    OpenTelemetry lets the global provider be set once; sessions come and go.

    Its tracers make real spans of the SDK while a session is plugged in, and none otherwise.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._provider: sdk.TracerProvider | None = None

    def plug(self, session: Session) -> None:
        """Record into `session` from here on."""
        self._session, self._provider = session, None

    def unplug(self, session: Session) -> None:
        """Record into it no more."""
        if self._session is session:
            self._session = self._provider = None

    @property
    def current(self) -> sdk.TracerProvider | None:
        """The SDK's provider for the session that records; made when the first tracer needs it."""
        session = self._session
        if session is None or session.closed:
            return None
        if self._provider is None:
            self._provider = _provider(session)
        return self._provider

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> Tracer:
        """A tracer of the session that records when it is used."""
        return _Delegate(
            self, (instrumenting_module_name, instrumenting_library_version, schema_url, attributes)
        )

    # What the SDK's provider has besides, for those who expect it.

    def add_span_processor(self, processor: SpanProcessor) -> None:
        """Have a processor look on for as long as the session that records is open."""
        if self._session is not None:
            self._session.observe(processor)

    @property
    def resource(self) -> Resource:
        """That of the session that records."""
        return Resource({}) if self._session is None else self._session.resource

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Have everything written that has ended."""
        return self._session is None or self._session.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Nothing: sessions are closed by who opened them."""


class _Delegate(Tracer):
    """Makes spans by whichever tracer the moment calls for."""

    def __init__(self, owner: DelegatingProvider, scope: tuple[Any, ...]) -> None:
        self._owner = owner
        self._scope = scope
        self._made: tuple[sdk.TracerProvider, Tracer] | None = None

    def _tracer(self) -> Tracer | None:
        provider = self._owner.current
        if provider is None:
            return None
        if self._made is None or self._made[0] is not provider:
            self._made = (provider, provider.get_tracer(*self._scope))
        return self._made[1]

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        """A span; where no session records, one that only passes on what is current."""
        tracer = self._tracer()
        if tracer is None:
            return trace.NonRecordingSpan(trace.get_current_span(context).get_span_context())
        return tracer.start_span(
            name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
        )

    @_agnosticcontextmanager
    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[Span]:
        """A span that is current within the block."""
        span = self.start_span(
            name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
        )
        with trace.use_span(span, end_on_exit, record_exception, set_status_on_exception) as current:
            yield current


def _provider(session: Session) -> sdk.TracerProvider:
    provider = sdk.TracerProvider(
        sampler=sampling.ALWAYS_ON,
        resource=session.resource,
        shutdown_on_exit=False,
        id_generator=_Ids(),
    )
    provider.add_span_processor(_ToSession(session))
    return provider


class _Ids(IdGenerator):
    """Ids from the operating system: the SDK's own repeat in workers that are seeded alike."""

    def generate_trace_id(self) -> int:
        return ids.trace_id()

    def generate_span_id(self) -> int:
        return ids.span_id()

    def is_trace_id_random(self) -> bool:
        return True


class _ToSession(SpanProcessor):
    """Hands ended spans to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def on_start(self, span: sdk.Span, parent_context: Context | None = None) -> None:
        self._session.guest_started(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        self._session.guest(span)


_ours = DelegatingProvider()


def install(session: Session) -> bool:
    """Make `session` the one that other instrumentations record into; False where another provider is set."""
    found = trace.get_tracer_provider()
    if isinstance(found, trace.ProxyTracerProvider):
        trace.set_tracer_provider(_ours)
        found = trace.get_tracer_provider()
    if found is not _ours:
        return False
    _ours.plug(session)
    session.at_close(_ours.unplug, session)
    return True


def mirror() -> Mirror:
    """
    A transport to the provider that somebody else has set.

    Raises ConfigureError where there is none, or it is not the SDK's.
    """
    provider = trace.get_tracer_provider()
    if provider is _ours or isinstance(provider, trace.ProxyTracerProvider):
        raise ConfigureError(
            "mirror=True: no other tracer provider is set; set yours ahead of mttp.configure"
        )
    processor: Any = getattr(provider, "_active_span_processor", None)
    if not callable(getattr(processor, "on_end", None)):
        raise ConfigureError(
            f"mirror=True: {type(provider).__name__} takes no spans that have ended, as the SDK's does; "
            "give its exporter to mttp.configure instead"
        )
    return Mirror(processor, type(provider).__name__)


class Mirror(SpanExporter):
    """
    Hands our spans, ids and all, to the processors of somebody else's provider.

    What other instrumentations record there within a step then hangs below that step.
    """

    name = "mirror"
    sampled = True
    buffer_bytes = 64 * 1024 * 1024
    patience = 0.0
    close_timeout = 10.0
    withholding = Withholding(content=False, max_elements=4096, max_episode_bytes=1024 * 1024)

    def __init__(self, processor: SpanProcessor, owner: str) -> None:
        self._processor = processor
        self._owner = owner

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand them over; what becomes of them there is the other provider's affair."""
        for span in spans:
            self._processor.on_end(span)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing: the other provider is released by who made it."""

    def __repr__(self) -> str:
        return f"mirror of {self._owner}"
