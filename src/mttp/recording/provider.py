"""The tracer provider that records other instrumentations' spans in the open session."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see _provider
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.model.spans import Scope
from mttp.otlp.spans.span_records import EndedSpan
from mttp.recording.session import Session
from mttp.semconv import attributes as a
from mttp.transports.partial_export import PartialExport, RejectedSpans

__all__ = ["DelegatingProvider", "Mirror", "check", "install", "mirror"]


@dataclass(frozen=True, slots=True)
class _PluggedSession:
    """A session and its SDK provider: one value, so that threads never see one without the other."""

    session: Session
    provider: sdk.TracerProvider


class DelegatingProvider(sdk.TracerProvider):
    """
    A tracer provider that delegates to the open session, because the global provider can be set only once.

    Its tracers create spans of the SDK while a session is plugged in, and non-recording spans otherwise.
    It is a subclass of the SDK's provider, because libraries check for that before they add processors.
    Attributes of the SDK's provider are those of the open session's provider.
    """

    _plugged_in: _PluggedSession | None = None

    def __init__(self) -> None:
        """Skip the SDK's set-up, which would read variables, possibly wrong ones, at import."""

    def plug(self, session: Session) -> None:
        """Delegate to `session`."""
        self._plugged_in = _PluggedSession(session, _provider(session))

    def unplug(self, session: Session) -> None:
        """Stop delegating to `session`."""
        if self._plugged_in is not None and self._plugged_in.session is session:
            self._plugged_in = None

    @property
    def current(self) -> sdk.TracerProvider | None:
        """The SDK's provider of the open session; None without one."""
        plugged_in = self._plugged_in
        return None if plugged_in is None or plugged_in.session.closed else plugged_in.provider

    @property
    def _session(self) -> Session | None:
        plugged_in = self._plugged_in
        return None if plugged_in is None or plugged_in.session.closed else plugged_in.session

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> Tracer:
        """Return a tracer that uses the session that is open when it is called."""
        return _DelegatingTracer(
            self, (instrumenting_module_name, instrumenting_library_version, schema_url, attributes)
        )

    # The rest of the SDK provider's interface.

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a span processor to the open session, which shuts it down when it closes."""
        session = self._session
        if session is None:
            log.warning(
                "mttp: no session is open, so %r gets no spans; add it to an open session", span_processor
            )
        else:
            session._add_processor(span_processor)

    @property
    def resource(self) -> Resource:
        """The resource of the open session; an empty one without a session."""
        session = self._session
        return Resource({}) if session is None else session._recorder.origin.resource

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the open session's SDK provider, for example its sampler."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.current or _no_session_provider(), name)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flush the open session; returns whether everything was delivered in time."""
        session = self._session
        return session is None or session.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Do nothing: a session is closed by the code that opened it."""


class _DelegatingTracer(Tracer):
    """A tracer that creates spans with the open session's tracer."""

    def __init__(self, owner: DelegatingProvider, scope: tuple[Any, ...]) -> None:
        self._owner = owner
        self._scope = scope
        self._cached: tuple[sdk.TracerProvider, Tracer] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the SDK's tracer."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._tracer() or _no_session_provider().get_tracer(*self._scope), name)

    def _tracer(self) -> Tracer | None:
        provider = self._owner.current
        if provider is None:
            return None
        if self._cached is None or self._cached[0] is not provider:
            self._cached = (provider, provider.get_tracer(*self._scope))
        return self._cached[1]

    def start_span(self, name: str, context: Context | None = None, *args: Any, **kwargs: Any) -> Span:
        """Start a span; without an open session, a non-recording span with the current span's context."""
        tracer = self._tracer()
        if tracer is None:
            return trace.NonRecordingSpan(trace.get_current_span(context).get_span_context())
        return tracer.start_span(name, context, *args, **kwargs)

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
        """Start a span that is the current one within the block."""
        span = self.start_span(
            name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
        )
        with trace.use_span(span, end_on_exit, record_exception, set_status_on_exception) as current:
            yield current


def _provider(session: Session) -> sdk.TracerProvider:
    """
    Create the SDK's provider of one session.

    In a forked child the SDK detects the process again, in a thread pool. That would hang if the pool's
    module, which holds a lock across forks, were imported after the provider is created.
    """
    return sdk.TracerProvider(
        sampler=_Sampler(session),
        resource=session._recorder.origin.resource,
        shutdown_on_exit=False,
        active_span_processor=_SessionProcessor(session),
        id_generator=_SystemIdGenerator(),
    )


@functools.cache
def _no_session_provider() -> sdk.TracerProvider:
    """The SDK provider that stands in while no session is open."""
    return sdk.TracerProvider(
        sampler=sampling.ALWAYS_OFF,
        resource=Resource({}),
        shutdown_on_exit=False,
        id_generator=_SystemIdGenerator(),
        span_limits=sdk.SpanLimits(*[sdk.SpanLimits.UNSET] * 8),
    )


class _SystemIdGenerator(IdGenerator):
    """Ids from the operating system; the SDK's own repeat in workers with the same seed."""

    def generate_trace_id(self) -> int:
        return ids.trace_id()

    def generate_span_id(self) -> int:
        return ids.span_id()

    def is_trace_id_random(self) -> bool:
        return True


class _Sampler(sampling.Sampler):
    """
    Records every span, because files and memory get all of them.

    The sampled flag decides whether collectors get a span: a child has its parent's flag, a root the
    session's sampling decision.
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
        sampled = parent.trace_flags.sampled
        if not parent.is_valid:
            sampled = self._session._recorder.samples(trace_id, None)
        decision = sampling.Decision.RECORD_AND_SAMPLE if sampled else sampling.Decision.RECORD_ONLY
        return sampling.SamplingResult(decision, attributes, parent.trace_state)

    def get_description(self) -> str:
        return "mttp"


class _SessionProcessor(sdk.SynchronousMultiSpanProcessor):
    """
    Passes spans to the session and catches its errors, which the SDK would raise into the traced code.

    The span processors that libraries find here are the session's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _span_processors(self) -> tuple[SpanProcessor, ...]:  # type: ignore[override]  # the SDK sets it
        return self._session._observers.processors

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        self._session._add_processor(span_processor)

    def shutdown(self) -> None:
        """Do nothing: a session is closed by the code that opened it."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._session.flush(timeout_millis / 1000)

    def _on_ending(self, span: sdk.Span) -> None:
        self._call(self._session._observers.ending, "ends", span)

    def on_start(self, span: sdk.Span, parent_context: Context | None = None) -> None:
        self._call(self._session._observers.started, "starts", span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        self._call(self._session._foreign_span_ended, "ends", span)

    def _call(self, hook: Callable[..., None], what: str, *args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            raise_interrupt(error)
            self._session._fault("internal_error", f"a span of another library that {what}: {error!r}")


_delegating = DelegatingProvider()


def check() -> None:
    """Raise ConfigureError if a span limit in OpenTelemetry's variables is invalid."""
    try:
        sdk.SpanLimits()
    except ValueError as error:
        raise ConfigureError(f"{error}; correct the variable, or unset it") from error


def install(session: Session) -> bool:
    """Record other libraries' spans in `session`; returns False if the program set another provider."""
    provider_set = trace.get_tracer_provider()
    if isinstance(provider_set, trace.ProxyTracerProvider):
        trace.set_tracer_provider(_delegating)
        provider_set = trace.get_tracer_provider()
    if provider_set is not _delegating:
        return False
    _delegating.plug(session)
    session._after_close(_delegating.unplug, session)
    return True


def mirror() -> Mirror:
    """
    Return a transport to the tracer provider that the program has set.

    Raises ConfigureError if no provider is set, or if it is not the SDK's.
    """
    provider = trace.get_tracer_provider()
    if provider is _delegating or isinstance(provider, trace.ProxyTracerProvider):
        raise ConfigureError("mirror=True: no other tracer provider is set; set yours before mttp.configure")
    processor: Any = getattr(provider, "_active_span_processor", None)
    resource: Any = getattr(provider, "resource", None)
    if not callable(getattr(processor, "on_end", None)) or not isinstance(resource, Resource):
        raise ConfigureError(
            f"mirror=True: the tracer provider {type(provider).__name__} is not the SDK's "
            "and takes no ended spans; pass its exporter to mttp.configure(exporters=[...]) instead"
        )
    return Mirror(processor, resource, type(provider).__name__)


class Mirror(SpanExporter):
    """
    Passes mttp's spans, with their ids, to the span processors of the program's provider.

    Spans that other instrumentations record there within a step are then children of that step.
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
        self._scope: Scope | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """
        Pass each span once to the other provider's processors.

        Raises PartialExport for the spans for which a processor raised.
        """
        failed: list[ReadableSpan] = []
        for span in spans:
            try:
                self._processor.on_end(self._with_their_resource(span))
            except Exception as error:
                raise_interrupt(error)
                failed.append(span)
                reason = repr(error)
        if failed:
            traces = {span.context.trace_id for span in failed if span.context is not None}
            raise PartialExport(reason, rejections=[RejectedSpans("mirror_failed", len(failed), len(traces))])
        return SpanExportResult.SUCCESS

    def _with_their_resource(self, span: ReadableSpan) -> ReadableSpan:
        """Return the span with the other provider's resource and this run's id and kind."""
        if not isinstance(span, EndedSpan) or span.record.scope.name != "mttp":
            return span
        scope = span.record.scope
        if self._scope is None:
            run = Resource({key: scope.resource[key] for key in (a.RUN_ID, a.RUN_KIND)})
            resource = self._resource.merge(run)
            self._scope = replace(
                scope, resource=dict(resource.attributes), resource_schema_url=resource.schema_url
            )
        return EndedSpan(replace(span.record, scope=self._scope))

    def shutdown(self) -> None:
        """Do nothing: the other provider belongs to the program."""

    def __repr__(self) -> str:
        return f"mirror of {self._owner}"
