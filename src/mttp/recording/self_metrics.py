"""OpenTelemetry metrics of recording itself: spans delivered, lost and waiting, failed integrations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from mttp.model.version import __version__
from mttp.recording.session import Session
from mttp.semconv import SCHEMA_URL, metrics, registry
from mttp.semconv import attributes as a
from mttp.transports.stats import Stats, TransportStats

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

__all__ = ["current_provider", "observe"]

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


def observe(session: Session, provider: MeterProvider) -> None:
    """Report a session's counters; they continue from those of the provider's earlier sessions."""
    if provider not in _by_provider:
        _by_provider[provider] = _SelfMetrics(provider.get_meter("mttp", __version__, SCHEMA_URL))
    _by_provider[provider].add(session)


def current_provider() -> MeterProvider | None:
    """Return the global meter provider; None if the program has not set one."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.metrics._internal import _ProxyMeterProvider

    found = get_meter_provider()
    return None if isinstance(found, _ProxyMeterProvider) else found


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
    found: list[_Values] = []
    with stats.lock:
        for each in stats.transports.values():
            value, transport = _VALUES[name](each), (a.TRANSPORT_NAME, each.name)
            if isinstance(value, Mapping):
                found.append({(transport, (a.GAP_REASON, cause)): count for cause, count in value.items()})
            else:
                found.append({(transport,): value})
    return _sum(*found)


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
