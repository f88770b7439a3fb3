"""The tracer provider through which other instrumentations' spans reach the session that records."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see _provider
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, sampling
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TraceState
from opentelemetry.util._decorator import _agnosticcontextmanager
from opentelemetry.util.types import Attributes

from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError
from mttp.model import ids
from mttp.otlp.spans import RecordingSpan, SpanOrigin
from mttp.recording.session import Session
from mttp.semconv import attributes as a
from mttp.transports.partial_export import PartialExport, RejectedSpans

__all__ = ["DelegatingProvider", "Mirror", "check", "install", "mirror"]

_log = logging.getLogger("mttp")


@dataclass(frozen=True, slots=True)
class _Plugged:
    """A session and what records into it: one value, so that threads never see the one without the other."""

    session: Session
    provider: sdk.TracerProvider


class DelegatingProvider(sdk.TracerProvider):
    """
    OpenTelemetry lets the global provider be set once; sessions come and go.

    Its tracers make real spans of the SDK while a session is plugged in, and none otherwise.
    Libraries ask whether a provider is the SDK's before they add to it, so it is one by class.
    What the SDK's providers have, it has from the session that records.
    """

    _plugged: _Plugged | None = None

    def __init__(self) -> None:
        """Nothing of the SDK's is set up: it would read variables, which may be wrong, at import."""

    def plug(self, session: Session) -> None:
        """Record into `session` from here on."""
        self._plugged = _Plugged(session, _provider(session))

    def unplug(self, session: Session) -> None:
        """Record into it no more."""
        if self._plugged is not None and self._plugged.session is session:
            self._plugged = None

    @property
    def current(self) -> sdk.TracerProvider | None:
        """The SDK's provider for the session that records; None where none does."""
        plugged = self._plugged
        return None if plugged is None or plugged.session.closed else plugged.provider

    @property
    def _session(self) -> Session | None:
        plugged = self._plugged
        return None if plugged is None or plugged.session.closed else plugged.session

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

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Have a processor look on until the session that records is closed, which shuts it down."""
        session = self._session
        if session is None:
            _log.warning("mttp: no session is open, and %r sees nothing: add it to one", span_processor)
        else:
            session._observe(span_processor)

    @property
    def resource(self) -> Resource:
        """That of the session that records; an empty one where none does."""
        session = self._session
        return Resource({}) if session is None else session._resource

    def __getattr__(self, name: str) -> Any:
        """The sampler, the id generator, the span processors and so on of the session that records."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.current or _idle(), name)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Have everything written that has ended; whether it was in time."""
        session = self._session
        return session is None or session.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Nothing: sessions are closed by who opened them."""


class _Delegate(Tracer):
    """Makes spans by whichever tracer the moment calls for."""

    def __init__(self, owner: DelegatingProvider, scope: tuple[Any, ...]) -> None:
        self._owner = owner
        self._scope = scope
        self._made: tuple[sdk.TracerProvider, Tracer] | None = None

    def __getattr__(self, name: str) -> Any:
        """What the SDK's tracers have besides."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._tracer() or _idle().get_tracer(*self._scope), name)

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
    """
    The SDK's provider for one session.

    In a forked child it looks at the process anew, by a thread pool.
    That would hang where the pool's module, which holds a lock across forks, is imported after this is made.
    """
    return sdk.TracerProvider(
        sampler=_Sampler(session),
        resource=session._resource,
        shutdown_on_exit=False,
        active_span_processor=_ToSession(session),
        id_generator=_Ids(),
    )


@functools.cache
def _idle() -> sdk.TracerProvider:
    """What stands for the SDK's provider while no session records."""
    return sdk.TracerProvider(
        sampler=sampling.ALWAYS_OFF,
        resource=Resource({}),
        shutdown_on_exit=False,
        id_generator=_Ids(),
        span_limits=sdk.SpanLimits(*[sdk.SpanLimits.UNSET] * 8),
    )


class _Ids(IdGenerator):
    """Ids from the operating system: the SDK's own repeat in workers that are seeded alike."""

    def generate_trace_id(self) -> int:
        return ids.trace_id()

    def generate_span_id(self) -> int:
        return ids.span_id()

    def is_trace_id_random(self) -> bool:
        return True


class _Sampler(sampling.Sampler):
    """
    Has every span recorded: files and memory keep it.

    The flag, by which collectors get a span or not, is the parent's, and the session's choice for a root.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,  # noqa: ARG002 - here and below: the SDK's signature
        kind: SpanKind | None = None,  # noqa: ARG002
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,  # noqa: ARG002
        trace_state: TraceState | None = None,  # noqa: ARG002
    ) -> sampling.SamplingResult:
        parent = trace.get_current_span(parent_context).get_span_context()
        sampled = parent.trace_flags.sampled if parent.is_valid else self._session._samples(trace_id)
        decision = sampling.Decision.RECORD_AND_SAMPLE if sampled else sampling.Decision.RECORD_ONLY
        return sampling.SamplingResult(decision, attributes, parent.trace_state)

    def get_description(self) -> str:
        return "mttp"


class _ToSession(sdk.SynchronousMultiSpanProcessor):
    """
    Shows spans to the session; the SDK would raise its failures into the code that made the span.

    What libraries find as the provider's processors are the session's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _span_processors(self) -> tuple[SpanProcessor, ...]:  # type: ignore[override]  # the SDK sets it
        return self._session._processors

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        self._session._observe(span_processor)

    def shutdown(self) -> None:
        """Nothing: the session is closed by who opened it."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._session.flush(timeout_millis / 1000)

    def _on_ending(self, span: sdk.Span) -> None:
        try:
            self._session._guest_ending(span)
        except Exception as error:
            self._session._fault("internal_error", f"a span of another library's that ends: {error!r}")

    def on_start(self, span: sdk.Span, parent_context: Context | None = None) -> None:
        try:
            self._session._guest_started(span, parent_context)
        except Exception as error:
            self._session._fault("internal_error", f"a span of another library's that starts: {error!r}")

    def on_end(self, span: ReadableSpan) -> None:
        try:
            self._session._guest(span)
        except Exception as error:
            self._session._fault("internal_error", f"a span of another library's that ends: {error!r}")


_ours = DelegatingProvider()


def check() -> None:
    """Raise ConfigureError where OpenTelemetry's variables ask for limits of spans that are none."""
    try:
        sdk.SpanLimits()
    except ValueError as error:
        raise ConfigureError(f"{error}; correct the variable, or unset it") from error


def install(session: Session) -> bool:
    """Make `session` the one that other instrumentations record into; False where another provider is set."""
    found = trace.get_tracer_provider()
    if isinstance(found, trace.ProxyTracerProvider):
        trace.set_tracer_provider(_ours)
        found = trace.get_tracer_provider()
    if found is not _ours:
        return False
    _ours.plug(session)
    session._at_close(_ours.unplug, session)
    return True


def mirror() -> Mirror:
    """
    A transport to the tracer provider that the program has set.

    Raises ConfigureError where there is none, or it is not the SDK's.
    """
    provider = trace.get_tracer_provider()
    if provider is _ours or isinstance(provider, trace.ProxyTracerProvider):
        raise ConfigureError(
            "mirror=True: no other tracer provider is set; set yours ahead of mttp.configure"
        )
    processor: Any = getattr(provider, "_active_span_processor", None)
    resource: Any = getattr(provider, "resource", None)
    if not callable(getattr(processor, "on_end", None)) or not isinstance(resource, Resource):
        raise ConfigureError(
            f"mirror=True: the tracer provider that is set, {type(provider).__name__}, is not the SDK's "
            "and takes no spans that have ended; give its exporter to mttp.configure(exporters=[...]) instead"
        )
    return Mirror(processor, resource, type(provider).__name__)


class Mirror(SpanExporter):
    """
    Passes our spans with their ids to the processors of the program's provider.

    What other instrumentations record there within a step then hangs below that step.
    """

    name = "mirror"
    sampled = True
    buffer_bytes = 64 * 1024 * 1024
    max_block_seconds = 0.0
    close_timeout = 10.0
    withholding = Withholding(content=False, max_elements=4096, max_episode_bytes=1024 * 1024)

    def __init__(self, processor: SpanProcessor, resource: Resource, owner: str) -> None:
        self._processor = processor
        self._resource = resource
        self._owner = owner
        self._origin: SpanOrigin | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """
        Hand them over, each once; what becomes of them there is the other provider's affair.

        Raises Refused for those at which its processors raised.
        """
        failed: list[ReadableSpan] = []
        for span in spans:
            try:
                self._processor.on_end(self._theirs(span))
            except Exception as error:
                failed.append(span)
                reason = repr(error)
        if failed:
            traces = {span.context.trace_id for span in failed if span.context is not None}
            raise PartialExport(reason, rejections=[RejectedSpans("mirror_failed", len(failed), len(traces))])
        return SpanExportResult.SUCCESS

    def _theirs(self, span: ReadableSpan) -> ReadableSpan:
        """The span as made by their service, in our run."""
        if not isinstance(span, RecordingSpan):
            return span
        if self._origin is None:
            run = Resource({a.RUN_ID: span.resource.attributes[a.RUN_ID]})
            self._origin = SpanOrigin(self._resource.merge(run), span.instrumentation_scope)
        return span.with_origin(self._origin)

    def shutdown(self) -> None:
        """Nothing: the other provider is released by who made it."""

    def __repr__(self) -> str:
        return f"mirror of {self._owner}"
