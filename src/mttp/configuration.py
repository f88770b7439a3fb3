"""Turning recording on: `configure`, and the session that starts by itself where nobody did."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from mttp import health, ids, provenance, provider, signals
from mttp.errors import ConfigureError
from mttp.lane import Lane, Transport
from mttp.recorder import OpenEpisode, OpenStep, current_episode, inert_episode
from mttp.routes import Destination, Route
from mttp.sampling import Sampling, from_environment
from mttp.session import Session
from mttp.transports import environment

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["RUN_ID_VARIABLE", "TRANSPORT_VARIABLE", "configure", "current_session", "episode", "step"]

_log = logging.getLogger("mttp")

RUN_ID_VARIABLE = "MTTP_RUN_ID"
"""The run, for the processes of it: `configure` sets it for those that this one starts."""
TRANSPORT_VARIABLE = "MTTP_TRANSPORT"
"""The transport, where `configure` is not told one; it is set for child processes likewise."""

_lock = threading.RLock()
_active: Session | None = None
_implicit = False
_over = False
_AND_ANOTHER = re.compile(r",\s*(?=[a-z]+://)")
"""A comma, where another address follows."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_KINDS = ("train", "eval", "replay")


def configure(
    transport: Destination | Sequence[Destination] | None = None,
    *,
    run: str | None = None,
    run_id: str | None = None,
    kind: str = "train",
    seed: int | str | None = None,
    config: object = None,
    algorithm: str | None = None,
    processors: Sequence[SpanProcessor] = (),
    exporters: Sequence[Transport] = (),
    content: bool | None = None,
    redact: Callable[[str, Any], Any] | None = None,
    sampling: Sampling | float | None = None,
    mirror: bool = False,
    meter_provider: MeterProvider | None = None,
    close_timeout: float | None = None,
) -> Session:
    """
    Record to `transport` from here on; the session that comes back closes it, also as a context manager.

    `transport` is an address (`memory://`, `file://runs/`, `http://localhost:4318`, `grpc://localhost:4317`),
    a path, an object that exports spans, a `Route`, or several of these.
    By default it is what MTTP_TRANSPORT says (several are separated by commas), else what OpenTelemetry's
    variables OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say, else `file://mttp-runs/<run id>/`.
    `exporters` are further transports; `processors` see every span start and end. Those of the SDK will do.

    `run` names the run; `seed` and `config` (anything that JSON can say) are kept with it.
    `content` and `redact` are as for `Route`, for every transport that says nothing of its own.
    `sampling` says which episodes collectors get, as a `Sampling` or a ratio from 0 to 1; by default what
    OpenTelemetry's variable OTEL_TRACES_SAMPLER says.
    `mirror` shows our spans to the tracer provider that somebody else has set, too.
    `meter_provider` is shown how recording fares, by default the one that is set.
    `close_timeout` is how many seconds the last spans may take, by default 30 for files, 10 for collectors.

    Other instrumentations' spans are recorded too, unless a tracer provider was set before.
    Processes that are started from here on join the run, where they don't configure another.
    A session that started by itself gives way.

    Raises ConfigureError when a session is open already or an argument is wrong, and TransportError when the
    transport can't be opened.
    """
    global _active, _implicit, _over
    if kind not in _KINDS:
        raise ConfigureError(f"kind {kind!r} is not one of {', '.join(_KINDS)}")
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise ConfigureError(f"meter_provider={meter_provider!r} is no meter provider")
    with _lock:
        if _active is not None and not _active.closed and not _implicit:
            raise ConfigureError(f"{_active!r} is open; close it before configuring another")
        if _active is not None:
            _active.close()
        _active = _open(
            transport,
            more=[*exporters, *([_mirror()] if mirror else [])],
            views={"content": content, "redact": redact, "close_timeout": close_timeout},
            processors=processors,
            sampling=sampling,
            run=run,
            run_id=run_id,
            kind=kind,
            seed=seed,
            config=config,
            algorithm=algorithm,
        )
        if not _active.closed:
            provider.install(_active)
            signals.close_on_sigterm(_active)
            health.observe(_active, meter_provider)
        _implicit, _over = False, True
        return _active


def _mirror() -> Transport:
    return provider.mirror()


def _open(
    transport: Destination | Sequence[Destination] | None = None,
    *,
    more: Sequence[Transport] = (),
    views: Mapping[str, Any] | None = None,
    processors: Sequence[SpanProcessor] = (),
    sampling: Sampling | float | None = None,
    run: str | None = None,
    run_id: str | None = None,
    config: object = None,
    **facts: Any,
) -> Session:
    launched = provenance.launch()
    launch_id = launched.pop("run_id", None)
    identity = str(run_id or os.environ.get(RUN_ID_VARIABLE) or launch_id or ids.run_id())
    facts = {"kind": "train", "name": run, **facts, **launched}
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        _log.warning("mttp: nothing is recorded: OTEL_SDK_DISABLED is true")
        return Session([], run_id=identity, facts=facts)
    routes = [*_routes(transport, identity), *map(Route, more)]
    if not routes and not processors:
        _log.warning("mttp: nothing is recorded: OTEL_TRACES_EXPORTER asks for no exporter")
        return Session([], run_id=identity, facts=facts)
    chosen, lanes = _sampling(sampling), _lanes(routes, views or {})
    session = Session(
        lanes,
        run_id=identity,
        facts=facts,
        config=config,
        processors=processors,
        sampling=chosen,
    )
    _publish(session, RUN_ID_VARIABLE, identity)
    addresses = [address for lane in lanes if (address := getattr(lane.transport, "address", None))]
    if addresses:
        _publish(session, TRANSPORT_VARIABLE, ",".join(map(str, addresses)))
    _close_at_exit()
    if "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None:
        _close_with_child(session)
        signals.close_on_sigterm(session)  # that is how a pool ends its workers
    return session


def _lanes(routes: Sequence[Route], views: Mapping[str, Any]) -> list[Lane]:
    """All of the routes open; where one can't be opened, none is left open that was not before."""
    lanes: list[Lane] = []
    try:
        for route in routes:
            lanes.append(route.open(**views))
    except BaseException:
        for route, lane in zip(routes, lanes, strict=False):
            if route.is_address:
                lane.transport.shutdown()
        raise
    return lanes


def _sampling(given: Sampling | float | None) -> Sampling | None:
    if given is None:
        return from_environment()
    return given if isinstance(given, Sampling) else Sampling(given)


def _routes(transport: Destination | Sequence[Destination] | None, run_id: str) -> list[Route]:
    """Where to, by argument, by our variable, by OpenTelemetry's, or by default."""
    if transport is None:
        stated = os.environ.get(TRANSPORT_VARIABLE)
        asked = None if stated else environment.transports()
        if asked is not None:
            return [Route(exporter) for exporter in asked]
        transport = (
            _AND_ANOTHER.split(stated) if stated else f"file://mttp-runs/{_NOT_IN_A_NAME.sub('-', run_id)}/"
        )
    several: Sequence[Any] = transport if isinstance(transport, (list, tuple)) else [transport]
    if not several:
        raise ConfigureError("transport is an empty list; name a transport, or leave it out for the default")
    return [item if isinstance(item, Route) else Route(item) for item in several]


def _publish(session: Session, variable: str, value: str) -> None:
    """Set a variable for the processes that this one starts, until the session is closed."""
    before = os.environ.get(variable)
    if before != value:
        os.environ[variable] = value
        session.at_close(_restore, variable, value, before)


def _restore(variable: str, ours: str, before: str | None) -> None:
    if os.environ.get(variable) != ours:
        return
    if before is None:
        del os.environ[variable]
    else:
        os.environ[variable] = before


@functools.cache
def _close_at_exit() -> None:
    atexit.register(_leave)


def _leave() -> None:
    """Close at the interpreter's end, which an exception may have brought about."""
    session = current_session()
    if session is not None:
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        session.__exit__(None if error is None else type(error), error, None)


def _close_with_child(session: Session) -> None:
    """Have a child of multiprocessing close its part when it leaves: it runs no atexit handlers."""
    sys.modules["multiprocessing.util"].Finalize(None, session.close, exitpriority=100)


def current_session() -> Session | None:
    """The session that records, if one is open."""
    return _active if _active is not None and not _active.closed else None


def _session() -> Session | None:
    global _active, _implicit
    session = _active
    if session is not None and not session.closed:
        return session
    if _over or (session is not None and _implicit):
        return None
    with _lock:
        if _active is None:
            _active = _open()
            _implicit = True
            if not _active.closed:
                _tell(f"mttp: recording episodes to {_active.transport!r}")
        return None if _active.closed else _active


def forget() -> None:
    """Begin as a new process would: no session is open, none was configured."""
    global _active, _implicit, _over
    if _active is not None:
        _active.close()
    _active, _implicit, _over = None, False, False


def _tell(message: str) -> None:
    with contextlib.suppress(Exception):
        print(message, file=sys.stderr)


def may_record() -> bool:
    """Whether an episode that started now would be recorded."""
    return current_session() is not None or (_active is None and not _over)


def recording_session() -> Session | None:
    """
    The session that records; where nobody configured one, one is started, and the user is told so.

    None where recording is over or off, or the default transport can't be opened, which is logged once.
    """
    global _over
    try:
        return _session()
    except Exception as error:
        _over = True
        _log.warning("mttp: nothing is recorded: %s", error)
        return None


def episode(
    *,
    env: str | None = None,
    task: object = None,
    group: object = None,
    seed: int | str | None = None,
    policy: object = None,
    slices: Sequence[str] = (),
    inputs: object = None,
    metadata: Mapping[str, object] | None = None,
    **more: Any,
) -> OpenEpisode:
    """
    Start an episode in the session that records; use it as a context manager, or call `end`.

    `more` may say whatever else `Session.episode` knows.
    Without a session, one is started on the default transport.
    """
    session = recording_session()
    if session is None:
        return inert_episode()
    return session.episode(
        env=env,
        task=task,
        group=group,
        seed=seed,
        policy=policy,
        slices=slices,
        inputs=inputs,
        metadata=metadata,
        **more,
    )


def step(**options: Any) -> OpenStep:
    """Start the current episode's next step; outside an episode it is inert, and that is counted."""
    opened = current_episode()
    if not opened:
        session = current_session()
        if session is not None:
            session.fault("step_outside_episode", "mttp.step() was called where no episode is current")
    return opened.step(**options)


_held: dict[int, Session] = {}
_registered: Session | None = None


def _before_fork() -> None:
    global _registered
    session = current_session()
    if session is None:
        return
    if session.before_fork():
        _held[threading.get_ident()] = session
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _registered is not session:
        _registered = session
        util.register_after_fork(session, _close_with_child)


def _after_fork_in_parent() -> None:
    session = _held.pop(threading.get_ident(), None)
    if session is not None:
        session.after_fork_in_parent()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    _held.clear()
    if _active is not None:
        _active.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
