"""OpenTelemetry metrics of episodes, steps, rewards and updates, and of recording itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from mttp.codec import components, kinds
from mttp.codec.pending import TOKENS
from mttp.model.counting import COMPLETED, is_counted, is_reward_counted
from mttp.model.declarations import keys
from mttp.model.episodes import Update
from mttp.model.interrupts import raise_interrupt
from mttp.model.version import __version__
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.span_records import EndedSpan
from mttp.recording.session import Session
from mttp.semconv import SCHEMA_URL, metrics, registry
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.stats import Stats, TransportStats

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

__all__ = ["observe"]

_MAGNITUDES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
_BOUNDARIES: Mapping[str, Sequence[float]] = {
    "1": [*(-value for value in reversed(_MAGNITUDES)), 0.0, *_MAGNITUDES],
    "s": [1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600],
    "{step}": [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000],
}
"""Bucket boundaries of histograms by unit; returns may be fractions, thousands or negative."""
_EPISODE = (a.ENV_ID, a.EPISODE_STATUS, a.EPISODE_OUTCOME)
_SPEC = (a.SPEC_NAME, a.SPEC_VERSION)
_UPDATE = {
    name: key
    for field, key in keys(Update).items()
    if (name := metrics.UPDATES_FINISHED.replace("finished", field)) in vars(metrics).values()
}
"""The attributes of an update with a metric of their field's name, by metric."""
_METRICS = (
    *(metrics.EPISODES_RETURN, metrics.EPISODES_LENGTH, metrics.EPISODES_DURATION, metrics.EPISODES_FINISHED),
    *(metrics.STEPS_DURATION, metrics.TOKENS_GENERATED),
    *(metrics.REWARDS_VALUE, metrics.REWARDS_SCORE, metrics.REWARDS_INVALID),
    *(*_UPDATE, metrics.UPDATES_FINISHED),
)


def observe(session: Session, kind: str, meter_provider: MeterProvider | None = None) -> None:
    """
    Record a session's metrics with `meter_provider`, by default the global one; without any do nothing.

    Sampling does not apply: metrics include episodes that collectors do not get. Counters of recording itself
    continue from those of the provider's earlier sessions.
    """
    try:
        provider = current_provider() if meter_provider is None else meter_provider
        if provider is not None:
            meter = provider.get_meter("mttp", __version__, SCHEMA_URL)
            if provider not in _by_provider:
                _by_provider[provider] = _SelfMetrics(meter)
            _by_provider[provider].add(session)
            session._add_processor(_MetricsRecorder(meter, kind))
    except Exception as error:
        raise_interrupt(error)
        session._fault("metrics_failed", f"{type(meter_provider).__name__}: {error!r}")


class _MetricsRecorder(SpanProcessor):
    """Records metrics from ended spans."""

    def __init__(self, meter: Meter, kind: str) -> None:
        self._kind = {a.RUN_KIND: kind}
        self._instruments = {name: _instrument(meter, name) for name in _METRICS}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Record the metrics of a span of mttp."""
        if not isinstance(span, (RecordingSpan, EndedSpan)):
            return
        if span.name == names.STEP and isinstance(span, RecordingSpan):
            self._step(span, span.encoded)  # `values` would decode the token block
            return
        kind = kinds.of(span.name, span.values, is_root=span.parent is None)
        if kind == names.STEP:
            self._step(span, span.values)
        elif kind == names.EPISODE:
            self._episode(span)
        elif kind == names.UPDATE:
            self._update(span.values)
        elif kind == names.REWARD:
            self._reward(span.values)
        elif kind == names.GRADE and a.REWARD_STATUS in span.values:
            self._score(span.values.get(a.GRADER_NAME, ""), span.values.get(a.REWARD_VALUE), span.values)

    def _episode(self, span: RecordingSpan | EndedSpan) -> None:
        attributes, dimensions = span.values, self._dimensions(span.values, _EPISODE)
        self._instruments[metrics.EPISODES_FINISHED].add(1, dimensions)
        if not is_counted(attributes.get(a.EPISODE_STATUS, COMPLETED)):
            return
        self._record(
            metrics.EPISODES_RETURN, attributes.get(a.EPISODE_RETURN), dimensions | _subset(attributes, _SPEC)
        )
        self._record(metrics.EPISODES_LENGTH, attributes.get(a.EPISODE_LENGTH), dimensions)
        if attributes.get(a.EPISODE_TIMING) != "batch":
            self._record(metrics.EPISODES_DURATION, _seconds(span), dimensions)

    def _step(self, span: RecordingSpan | EndedSpan, attributes: Mapping[str, Any]) -> None:
        block = attributes.get(TOKENS)  # not decoded: only its length is needed
        count = attributes.get(a.TOKEN_COUNT, 0) if block is None else block[0]
        if count:
            self._instruments[metrics.TOKENS_GENERATED].add(count, self._kind)
        if attributes.get(a.STEP_REWARD_STATUS) == "error":
            self._instruments[metrics.REWARDS_INVALID].add(1, {a.REWARD_STATUS: "error", **self._kind})
        if scoring := components.of_step(attributes):
            self._reward(scoring)
        if span.is_timed:
            self._record(metrics.STEPS_DURATION, _seconds(span), self._kind)

    def _reward(self, attributes: Mapping[str, Any]) -> None:
        dimensions = self._dimensions(attributes, (*_SPEC, a.GRADER_NAME))
        if is_reward_counted(attributes[a.REWARD_STATUS]):
            self._record(metrics.REWARDS_VALUE, attributes.get(a.REWARD_VALUE), dimensions)
        if attributes[a.REWARD_STATUS] in ("error", "missing"):
            status = {a.REWARD_STATUS: attributes[a.REWARD_STATUS]}
            self._instruments[metrics.REWARDS_INVALID].add(
                1, status | self._dimensions(attributes, (a.SPEC_NAME,))
            )
        for component, value in components.decode(a.REWARD_SCORE, attributes).items():
            self._score(component, value, attributes)

    def _score(self, component: str, value: Any, attributes: Mapping[str, Any]) -> None:
        self._record(
            metrics.REWARDS_SCORE, value, {a.COMPONENT_NAME: component} | self._dimensions(attributes, _SPEC)
        )

    def _update(self, attributes: Mapping[str, Any]) -> None:
        dimensions = self._dimensions(attributes, (a.POLICY_ID,))
        self._instruments[metrics.UPDATES_FINISHED].add(1, dimensions)
        for name, key in _UPDATE.items():
            value = attributes.get(key)
            if isinstance(value, float) and math.isfinite(value):
                self._instruments[name].set(value, dimensions)

    def _dimensions(self, attributes: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        return _subset(attributes, keys) | self._kind

    def _record(self, name: str, value: Any, dimensions: Mapping[str, Any]) -> None:
        if isinstance(value, (int, float)) and math.isfinite(value):
            self._instruments[name].record(value, dimensions)


def _instrument(meter: Meter, name: str) -> Any:
    instrument = registry.instruments()[name]
    options = {"unit": instrument.unit, "description": instrument.description}
    if instrument.kind == "counter":
        return meter.create_counter(name, **options)
    if instrument.kind == "gauge":
        return meter.create_gauge(name, **options)
    boundaries = _BOUNDARIES[instrument.unit]
    return meter.create_histogram(name, **options, explicit_bucket_boundaries_advisory=boundaries)


def _subset(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: attributes[key] for key in keys if key in attributes}


def _seconds(span: ReadableSpan) -> float:
    return ((span.end_time or 0) - (span.start_time or 0)) / 1e9


_Dimensions: TypeAlias = tuple[tuple[str, str], ...]
_Values: TypeAlias = Mapping[_Dimensions, float]

_VALUES: Mapping[str, Callable[[TransportStats], float | Mapping[str, float]]] = {
    metrics.EXPORTER_QUEUE_SIZE: lambda stats: stats.waiting_bytes,
    metrics.EXPORTER_SPANS_RECORDED: lambda stats: stats.recorded + stats.sampled_out,
    metrics.EXPORTER_SPANS_DELIVERED: lambda stats: stats.delivered,
    metrics.EXPORTER_SPANS_SAMPLED_OUT: lambda stats: stats.sampled_out,
    metrics.EXPORTER_SPANS_LOST: lambda stats: stats.lost,
    metrics.EXPORTER_EPISODES_LOST: lambda stats: stats.lost_episodes,
    metrics.EXPORTER_BLOCKED_DURATION: lambda stats: stats.blocked_seconds,
}
"""The value of each metric from a transport's counters; a mapping is by the cause of the loss."""
_NAMES = (*_VALUES, metrics.INTEGRATIONS_FAILURES)


def current_provider() -> MeterProvider | None:
    """Return the global meter provider; None if the program has not set one."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.metrics._internal import _ProxyMeterProvider

    provider = get_meter_provider()
    return None if isinstance(provider, _ProxyMeterProvider) else provider


class _SelfMetrics:
    """The sums over all sessions of a meter provider, whose callbacks can't be removed."""

    def __init__(self, meter: Meter) -> None:
        self._totals_and_sessions: tuple[Mapping[str, _Values], Sequence[Session]] = (
            {name: {} for name in _NAMES},
            (),
        )
        # one value, so that a collection sees a session either open or closed; a fork could copy a held lock
        for name in _NAMES:
            self._create(meter, name)

    def _create(self, meter: Meter, name: str) -> None:
        instrument = registry.instruments()[name]
        create: Callable[..., Any] = meter.create_observable_up_down_counter
        if instrument.kind == "counter":
            create = meter.create_observable_counter
        callbacks = [partial(self._observations, name)]
        create(name, callbacks, unit=instrument.unit, description=instrument.description)

    def add(self, session: Session) -> None:
        """Add a session."""
        totals, sessions = self._totals_and_sessions
        self._totals_and_sessions = totals, (*sessions, session)
        session._after_close(self._add_to_totals, session)

    def _add_to_totals(self, session: Session) -> None:
        """Add a closed session's counters to the totals."""
        totals, sessions = self._totals_and_sessions
        totals = {name: _sum(values, _values_of(name, session.stats)) for name, values in totals.items()}
        self._totals_and_sessions = totals, tuple(other for other in sessions if other is not session)

    def _observations(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        totals, sessions = self._totals_and_sessions
        total = _sum(totals[name], *(_values_of(name, session.stats) for session in sessions))
        for dimensions, value in total.items():
            yield Observation(value, dict(dimensions))


def _values_of(name: str, stats: Stats) -> _Values:
    """Return a metric's values for a session, by transport and cause, or by library and error."""
    if name == metrics.INTEGRATIONS_FAILURES:
        return _failure_values(stats)
    values: list[_Values] = []
    with stats.lock:
        for each in stats.transports.values():
            value, transport = _VALUES[name](each), (a.TRANSPORT_NAME, each.name)
            if isinstance(value, Mapping):
                values.append({(transport, (a.GAP_REASON, cause)): count for cause, count in value.items()})
            else:
                values.append({(transport,): value})
    return _sum(*values)


def _failure_values(stats: Stats) -> _Values:
    with stats.lock:
        return {
            ((a.INTEGRATION_NAME, library), (a.ERROR_TYPE, error)): count
            for (library, error), count in stats.failures.items()
        }


def _sum(*values: _Values) -> _Values:
    total: dict[_Dimensions, float] = {}
    for each in values:
        for dimensions, value in each.items():
            total[dimensions] = total.get(dimensions, 0) + value
    return total


_by_provider: WeakKeyDictionary[MeterProvider, _SelfMetrics] = WeakKeyDictionary()
