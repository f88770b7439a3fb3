"""Opening a session: which transports it has, and what the processes that this one starts are told of it."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor

from mttp.codec.plain import text
from mttp.codec.secrets import VARIABLE as SECRETS_VARIABLE
from mttp.codec.secrets import Secrets
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError, TransportError
from mttp.model import ids
from mttp.otlp.malloc import keep_freed
from mttp.otlp.spans import AUTO, STEP_MODES
from mttp.recording import provenance
from mttp.recording.isolation import IsolatedRecording
from mttp.recording.session import Session
from mttp.transports import environment
from mttp.transports.export_target import ExportTarget, Transport
from mttp.transports.options import flag, parse
from mttp.transports.routes import Destination, Route, check
from mttp.transports.sampling import Sampling, from_environment

__all__ = [
    "RUN_ID_VARIABLE",
    "TRANSPORT_VARIABLE",
    "close_with_child",
    "close_with_this_child",
    "is_off",
    "open_session",
    "publish",
]

_log = logging.getLogger("mttp")

RUN_ID_VARIABLE = "MTTP_RUN_ID"
"""The run, for the processes of it: `configure` sets it for those that this one starts."""
TRANSPORT_VARIABLE = "MTTP_TRANSPORT"
"""The transports where `configure` names none; also set for child processes."""

CONTENT_VARIABLE = "MTTP_CONTENT"
"""Whether transports are given content, where `configure` does not say; set for child processes, too."""

_AND_ANOTHER = re.compile(r"\s*,\s*(?=[a-z+]+://)")
"""A comma, where another address follows."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def open_session(
    transport: Destination | Sequence[Destination] | None = None,
    *,
    apart: IsolatedRecording | None = None,
    exporters: Sequence[Transport] = (),
    content: bool | None = None,
    token_ids: bool | None = None,
    redact: Callable[[str, Any], Any] | None = None,
    profile: str | None = None,
    close_timeout: float | None = None,
    processors: Sequence[SpanProcessor] = (),
    sampling: Sampling | float | None = None,
    steps: str = AUTO,
    secret_keys: Sequence[str] | bool | None = None,
    run: str | None = None,
    run_id: str | None = None,
    config: object = None,
    **facts: Any,
) -> Session:
    """
    A new session; arguments are those of `mttp.configure`; `apart` says what is recorded apart.

    Raises ConfigureError where an argument is wrong, and TransportError where a transport can't be opened.
    """
    if steps not in STEP_MODES:
        raise ConfigureError(f"steps={steps!r} is not one of {', '.join(STEP_MODES)}")
    launched = provenance.launch()
    launch_id = launched.pop("run_id", None)
    identity = text(run_id or _told(RUN_ID_VARIABLE, apart) or launch_id or ids.run_id(), [])
    facts = {"kind": "train", "name": run, **facts, **launched}
    if is_off():
        _log.warning("mttp: nothing is recorded: OTEL_SDK_DISABLED is true")
        return Session([], run_id=identity, facts=facts)
    routes = [*_routes(transport, identity, apart, profile), *map(Route, exporters)]
    if not routes and not processors:
        _log.warning("mttp: nothing is recorded: OTEL_TRACES_EXPORTER asks for no exporter")
        return Session([], run_id=identity, facts=facts)
    chosen, secrets = _sampling(sampling), Secrets.stated(secret_keys)
    content = _content(apart) if content is None else content
    terms = {"content": content, "token_ids": token_ids}
    check(terms, redact, close_timeout)
    try:
        own = _lanes(routes, **terms, redact=redact, close_timeout=close_timeout)
    except TransportError as error:
        if transport is None and _told(TRANSPORT_VARIABLE, apart):
            raise TransportError(f"{TRANSPORT_VARIABLE}: {error}") from error.__cause__
        raise
    lanes = own if apart is None else apart.with_others(own)
    keep_freed()
    session = Session(
        lanes,
        run_id=identity,
        facts=facts,
        config=config,
        processors=processors,
        sampling=chosen,
        steps=steps,
        withholding=Withholding(content=content is not False, token_ids=token_ids, redact=redact),
        secrets=secrets,
    )
    if apart is not None:
        apart.opened.append(session)
    publish(session, RUN_ID_VARIABLE, identity)
    addresses = [address for lane in own if (address := getattr(lane.transport, "address", None))]
    if addresses:
        publish(session, TRANSPORT_VARIABLE, ",".join(map(str, addresses)))
    if any(map(_withholds_more, own)):
        publish(session, CONTENT_VARIABLE, "false")
    if str(secrets):
        publish(session, SECRETS_VARIABLE, str(secrets))
    close_with_this_child(session)
    return session


def is_off() -> bool:
    """Whether OpenTelemetry's switch turns recording off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def close_with_this_child(session: Session) -> None:
    """In a child of multiprocessing, have the session closed when the child leaves."""
    if "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None:
        close_with_child(session)


def close_with_child(session: Session) -> None:
    """Have a child of multiprocessing close its part when it leaves: it runs no atexit handlers."""
    sys.modules["multiprocessing.util"].Finalize(None, session.close, exitpriority=100)


# Which transports.


def _routes(
    transport: Destination | Sequence[Destination] | None,
    run_id: str,
    apart: IsolatedRecording | None,
    profile: str | None,
) -> list[Route]:
    """Where to, by argument, by our variable, by OpenTelemetry's, or by default."""
    if transport is None:
        transport = _by_default(run_id, apart, profile)
    several: Sequence[Any] = transport if isinstance(transport, (list, tuple)) else [transport]
    if not several and not isinstance(transport, _FromVariables):
        raise ConfigureError("transport is an empty list; name a transport, or leave it out for the default")
    routes = [item if isinstance(item, Route) else Route(item) for item in several]
    return routes if profile is None else _profiled(routes, profile)


def _profiled(routes: Sequence[Route], profile: str) -> list[Route]:
    """The same routes, those to receivers with the profile; raises ConfigureError where none is one."""
    found = [route.with_profile(profile) for route in routes]
    if not any(route.has_profile for route in found):
        raise ConfigureError(
            f"profile={profile!r} is for receivers, http://HOST:PORT or grpc://HOST:PORT, "
            f"and there is none among {', '.join(map(repr, routes)) or 'the transports'}"
        )
    return found


class _FromVariables(list[Transport]):
    """What variables ask for, which may be nothing."""


def _by_default(
    run_id: str, apart: IsolatedRecording | None, profile: str | None
) -> Destination | Sequence[Destination]:
    stated = _told(TRANSPORT_VARIABLE, apart)
    if stated:
        return _AND_ANOTHER.split(stated)
    if apart is not None:
        return apart.transports[0]
    asked = environment.from_environment(profile)
    return f"file://mttp-runs/{_NOT_IN_A_NAME.sub('-', run_id)}/" if asked is None else _FromVariables(asked)


def _lanes(routes: Sequence[Route], **views: Any) -> list[ExportTarget]:
    """All of the routes open; where one can't be opened, none is left open that was not before."""
    lanes: list[ExportTarget] = []
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


# What child processes are told.


def _told(variable: str, apart: IsolatedRecording | None) -> str | None:
    """The value of a variable without blanks around it; None where it is empty, or was set by `apart`."""
    value = os.environ.get(variable)
    is_ours = apart is not None and value == apart.published.get(variable)
    return None if value is None or is_ours else value.strip() or None


def _content(apart: IsolatedRecording | None) -> bool | None:
    """Whether the variable asks for content; raises ConfigureError for another value than true or false."""
    stated = None if apart is not None else _told(CONTENT_VARIABLE, apart)
    return None if stated is None else bool(parse(flag, stated, CONTENT_VARIABLE))


def _withholds_more(lane: ExportTarget) -> bool:
    """Whether a transport is given less than by itself; a child process has no function that redacts."""
    usual: Withholding = getattr(lane.transport, "withholding", Withholding())
    return usual.rule.shows_all and not lane.withholding.rule.shows_all


def publish(session: Session, variable: str, value: str) -> None:
    """Set a variable for the processes that this one starts, until the session is closed."""
    before = os.environ.get(variable)
    if before != value:
        os.environ[variable] = value
        session._at_close(_restore, variable, value, before)


def _restore(variable: str, ours: str, before: str | None) -> None:
    if os.environ.get(variable) != ours:
        return
    if before is None:
        del os.environ[variable]
    else:
        os.environ[variable] = before
