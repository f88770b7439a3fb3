"""How recording itself fares, as OpenTelemetry metrics: spans delivered, lost and waiting, failed hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from mttp.model.version import __version__
from mttp.recording.session import Session
from mttp.semconv import SCHEMA_URL, metrics
from mttp.semconv import attributes as a
from mttp.transports.stats import Stats, TransportStats

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

__all__ = ["current_provider", "observe"]

_Dimensions: TypeAlias = tuple[tuple[str, str], ...]
_Figures: TypeAlias = Mapping[_Dimensions, float]

_FIGURES: Mapping[str, Callable[[TransportStats], float | Mapping[str, float]]] = {
    metrics.EXPORTER_QUEUE_SIZE: lambda stats: stats.waiting_bytes,
    metrics.EXPORTER_SPANS_RECORDED: lambda stats: stats.recorded + stats.sampled_out,
    metrics.EXPORTER_SPANS_DELIVERED: lambda stats: stats.delivered,
    metrics.EXPORTER_SPANS_SAMPLED_OUT: lambda stats: stats.sampled_out,
    metrics.EXPORTER_SPANS_LOST: lambda stats: stats.lost,
    metrics.EXPORTER_EPISODES_LOST: lambda stats: stats.lost_episodes,
    metrics.EXPORTER_BLOCKED_DURATION: lambda stats: stats.blocked_seconds,
}
"""What each metric says of one transport; a mapping is by the reason of the loss."""
_NAMES = (*_FIGURES, metrics.INTEGRATIONS_FAILURES)


def observe(session: Session, meter_provider: MeterProvider | None = None) -> None:
    """
    Show a session's counters to a meter provider, by default the one that is set; where none is, do nothing.

    Counters go on where those of the provider's earlier sessions stopped.
    """
    try:
        provider = current_provider() if meter_provider is None else meter_provider
        if provider is not None:
            if provider not in _known:
                _known[provider] = _Health(provider.get_meter("mttp", __version__, SCHEMA_URL))
            _known[provider].add(session)
    except Exception as error:
        session._fault("metrics_failed", f"{type(meter_provider).__name__}: {error!r}")


def current_provider() -> MeterProvider | None:
    """The meter provider, if the program has set one and so loaded the metrics API."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.metrics._internal import _ProxyMeterProvider

    found = get_meter_provider()
    return None if isinstance(found, _ProxyMeterProvider) else found


class _Health:
    """The sums over all sessions of a meter provider: sessions end, and callbacks can't be withdrawn."""

    def __init__(self, meter: Meter) -> None:
        self._seen: tuple[Mapping[str, _Figures], Sequence[Session]] = ({name: {} for name in _NAMES}, ())
        # one value, so that a collection sees a session open or closed; a lock might be held at a fork
        for name in _NAMES:
            self._create(meter, name)

    def _create(self, meter: Meter, name: str) -> None:
        instrument = metrics.INSTRUMENTS[name]
        create: Callable[..., Any] = meter.create_observable_up_down_counter
        if instrument.kind == "counter":
            create = meter.create_observable_counter
        callbacks = [partial(self._observations, name)]
        create(name, callbacks, unit=instrument.unit, description=instrument.description)

    def add(self, session: Session) -> None:
        """Count a session in."""
        past, sessions = self._seen
        self._seen = past, (*sessions, session)
        session._after_close(self._keep, session)

    def _keep(self, session: Session) -> None:
        """Remember what a session came to."""
        past, sessions = self._seen
        over = {name: _sum(figures, _figures(name, session.stats)) for name, figures in past.items()}
        self._seen = over, tuple(other for other in sessions if other is not session)

    def _observations(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        past, sessions = self._seen
        total = _sum(past[name], *(_figures(name, session.stats) for session in sessions))
        for dimensions, value in total.items():
            yield Observation(value, dict(dimensions))


def _figures(name: str, stats: Stats) -> _Figures:
    """What a metric says of a session, by transport and reason, or by library and error."""
    if name == metrics.INTEGRATIONS_FAILURES:
        return _failures(stats)
    found: list[_Figures] = []
    with stats.lock:
        for each in stats.transports.values():
            said, transport = _FIGURES[name](each), (a.TRANSPORT_NAME, each.name)
            if isinstance(said, Mapping):
                found.append({(transport, (a.GAP_REASON, why)): value for why, value in said.items()})
            else:
                found.append({(transport,): said})
    return _sum(*found)


def _failures(stats: Stats) -> _Figures:
    with stats.lock:
        return {
            ((a.INTEGRATION_NAME, library), (a.ERROR_TYPE, error)): count
            for (library, error), count in stats.failures.items()
        }


def _sum(*figures: _Figures) -> _Figures:
    total: dict[_Dimensions, float] = {}
    for each in figures:
        for dimensions, value in each.items():
            total[dimensions] = total.get(dimensions, 0) + value
    return total


_known: WeakKeyDictionary[MeterProvider, _Health] = WeakKeyDictionary()
