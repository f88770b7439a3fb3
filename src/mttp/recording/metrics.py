"""OpenTelemetry metrics of episodes, steps, rewards and updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from mttp.recording import self_metrics
from mttp.recording.self_metrics import current_provider
from mttp.recording.session import Session
from mttp.semconv import SCHEMA_URL, metrics, registry
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider

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

    Sampling does not apply: metrics include episodes that collectors do not get.
    """
    try:
        provider = current_provider() if meter_provider is None else meter_provider
        if provider is not None:
            self_metrics.observe(session, provider)
            recorder = _MetricsRecorder(provider.get_meter("mttp", __version__, SCHEMA_URL), kind)
            session._add_processor(recorder)
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
