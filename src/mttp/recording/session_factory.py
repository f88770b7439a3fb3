"""`open_session`: transports from arguments and variables, variables for child processes, and isolation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from mttp.codec.fields import checked_text
from mttp.codec.plain import scalar_text, text
from mttp.codec.secrets import VARIABLE as SECRETS_VARIABLE
from mttp.codec.secrets import Secrets
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError, MttpError, TransportError
from mttp.model import ids
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.model.log import log
from mttp.otlp.spans import AUTO, STEP_MODES
from mttp.recording import provenance
from mttp.recording.session import Session
from mttp.transports import environment
from mttp.transports.export_target import ExportTarget, Transport
from mttp.transports.options import flag, parse
from mttp.transports.routes import Destination, Route, check
from mttp.transports.sampling import Sampling, from_environment

if TYPE_CHECKING:
    from mttp.recording.session import Session

__all__ = [
    "CONTENT_VARIABLE",
    "IsolatedRecording",
    "RUN_ID_VARIABLE",
    "TRANSPORT_VARIABLE",
    "addresses",
    "announce",
    "close_with_child",
    "close_with_this_child",
    "is_off",
    "open_session",
    "publish",
]


RUN_ID_VARIABLE = "MTTP_RUN_ID"
"""The run's id; set for child processes, which join the run."""
TRANSPORT_VARIABLE = "MTTP_TRANSPORT"
"""The transports if `configure` names none; set for child processes."""

CONTENT_VARIABLE = "MTTP_CONTENT"
"""Whether transports get content unless `configure` states it; set for child processes."""

_ADDRESS_SEPARATOR = re.compile(r"\s*,\s*(?=[a-z+]+://)")
"""A comma before another address."""
_UNSAFE_IN_PATH = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(slots=True)
class IsolatedRecording:
    """The transports and sessions of one `configuration.isolated` block."""

    transports: tuple[Transport, ...]
    """They get the spans of every session of the block; the first is the default transport."""
    before: Session | None
    """The session that was open before the block, and is restored after it."""
    outer: IsolatedRecording | None
    """The enclosing block."""
    session: Session | None = None
    """The session that is open during the block; `configure` replaces it without closing it."""
    opened: list[Session] = field(default_factory=list)
    """The sessions that were opened in the block."""
    published: dict[str, str] = field(default_factory=dict)
    """Variables that are set for child processes, and ignored in this one."""

    def with_others(self, targets: Sequence[ExportTarget]) -> list[ExportTarget]:
        """Return a session's own targets, and those of this block, which get everything."""
        own = [target.transport for target in targets]
        others = [other for other in self.transports if not any(other is transport for transport in own)]
        return [*targets, *(replace(ExportTarget.of(other), owned=False) for other in others)]

    def sessions(self) -> list[Session]:
        """Return all sessions of this block and of the enclosing ones."""
        outer = [] if self.outer is None else self.outer.sessions()
        return [*self.opened, *([] if self.before is None else [self.before]), *outer]


def open_session(
    transport: Destination | Sequence[Destination] | None = None,
    *,
    isolation: IsolatedRecording | None = None,
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
    provenance_facts: bool = True,
    **facts: Any,
) -> Session:
    """
    Open a session; the arguments are those of `mttp.configure`, and the isolated recording if there is one.

    Raises ConfigureError if an argument is wrong, and TransportError if a transport can't be opened.
    """
    steps = checked_text(ConfigureError, "steps", steps)
    if steps not in STEP_MODES:
        raise ConfigureError(f"steps={scalar_text(steps):.80} is not one of {', '.join(STEP_MODES)}")
    launch_facts = provenance.launch()
    is_first = RUN_ID_VARIABLE not in os.environ and not launch_facts.get("rank")
    launch_id = launch_facts.pop("run_id", None)
    stated_id = checked_text(ConfigureError, "run_id", run_id)
    identity = text(stated_id or _variable(RUN_ID_VARIABLE, isolation) or launch_id or ids.run_id(), [])
    if "\0" in identity:
        raise ConfigureError(
            f"run_id={identity!r:.80} has a null character, which no environment variable can have, "
            "and child processes get the id in one; leave it out"
        )
    facts = {
        "kind": "train",
        "name": checked_text(ConfigureError, "run", run) or None,
        **facts,
        **launch_facts,
    }
    if is_off():
        log.warning("mttp: nothing is recorded: OTEL_SDK_DISABLED is true")
        return Session([], run_id=identity, facts=facts)
    with _asking(transport):
        routes = [*_routes(transport, identity, isolation, profile), *map(Route, exporters)]
    if not routes and not processors:
        log.warning("mttp: nothing is recorded: OTEL_TRACES_EXPORTER selects no exporter")
        return Session([], run_id=identity, facts=facts)
    if not isinstance(sampling, Sampling):
        sampling = from_environment() if sampling is None else Sampling(sampling)
    secrets = Secrets.stated(secret_keys)
    content = _content(isolation) if content is None else content
    content_options = {"content": content, "token_ids": token_ids}
    check(content_options, redact, close_timeout)
    try:
        with _asking(transport):
            own = _open_targets(routes, **content_options, redact=redact, close_timeout=close_timeout)
    except TransportError as error:
        if transport is None and _variable(TRANSPORT_VARIABLE, isolation):
            raise TransportError(f"{TRANSPORT_VARIABLE}: {error}") from error.__cause__
        raise
    targets = own if isolation is None else isolation.with_others(own)
    session = Session(
        targets,
        run_id=identity,
        facts=facts,
        config=config,
        processors=processors,
        sampling=sampling,
        steps=steps,
        withholding=Withholding(content=content is not False, token_ids=token_ids, redact=redact),
        secrets=secrets,
        provenance=provenance_facts,
    )
    if isolation is not None:
        isolation.opened.append(session)
    publish(session, RUN_ID_VARIABLE, identity)
    own_addresses = [address for target in own if (address := getattr(target.transport, "address", None))]
    if own_addresses:
        publish(session, TRANSPORT_VARIABLE, ",".join(map(str, own_addresses)))
    if any(map(_is_stricter, own)):
        publish(session, CONTENT_VARIABLE, "false")
    if str(secrets):
        publish(session, SECRETS_VARIABLE, str(secrets))
    close_with_this_child(session)
    if isolation is None and is_first and content is None:
        _announce_withheld(routes, own)
    return session


def announce(message: str) -> None:
    """Print a line about what is recorded, to standard error."""
    with suppress_errors():
        print(message, file=sys.stderr)


def _announce_withheld(routes: Sequence[Route], targets: Sequence[ExportTarget]) -> None:
    """Name the transports that get no content by default, and what sends it."""
    silent = [
        target.address
        for route, target in zip(routes, targets, strict=True)
        if route.content is None and not target.withholding.content
    ]
    if silent:
        announce(
            f"mttp: prompts, answers, token ids and other content are withheld from {', '.join(silent)}; "
            "mttp.configure(content=True) sends them"
        )


def is_off() -> bool:
    """Return whether OTEL_SDK_DISABLED turns recording off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def close_with_this_child(session: Session) -> None:
    """In a child process of multiprocessing, close the session when the child exits."""
    if "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None:
        close_with_child(session)


def close_with_child(session: Session) -> None:
    """Close the session when a child process of multiprocessing exits, which runs no atexit handlers."""
    sys.modules["multiprocessing.util"].Finalize(None, session.close, exitpriority=100)


# Transports.


@contextmanager
def _asking(transport: object) -> Iterator[None]:
    """Raise ConfigureError for what a foreign object raises when it is asked what it is."""
    try:
        yield
    except MttpError:
        raise
    except Exception as error:
        raise_interrupt(error)
        if transport is None or type(transport) is str:
            raise
        raise ConfigureError(
            f"transport={scalar_text(transport):.80} can't be used: it raised {type(error).__name__}; "
            "write 'file://runs/a.jsonl', or pass an exporter"
        ) from error


def _routes(
    transport: Destination | Sequence[Destination] | None,
    run_id: str,
    isolation: IsolatedRecording | None,
    profile: str | None,
) -> list[Route]:
    """Return the routes from the argument, MTTP_TRANSPORT, OpenTelemetry's variables, or the default."""
    if transport is None:
        transport = _default_transport(run_id, isolation, profile)
    several: Sequence[Any] = transport if isinstance(transport, (list, tuple)) else [transport]
    if not several and not isinstance(transport, _FromVariables):
        raise ConfigureError("transport is an empty list; name a transport or omit the argument")
    routes = [item if isinstance(item, Route) else Route(item) for item in several]
    return routes if profile is None else _profiled(routes, profile)


def _profiled(routes: Sequence[Route], profile: str) -> list[Route]:
    """Return the routes with the profile on those to receivers; raises ConfigureError without a receiver."""
    found = [route.with_profile(profile) for route in routes]
    if not any(route.has_profile for route in found):
        raise ConfigureError(
            f"profile={scalar_text(profile):.80} is for receivers, http://HOST:PORT or grpc://HOST:PORT; "
            f"there is none in {', '.join(map(repr, routes)) or 'the transports'}"
        )
    return found


class _FromVariables(list[Transport]):
    """Transports from OpenTelemetry's variables; may be empty."""


def _default_transport(
    run_id: str, isolation: IsolatedRecording | None, profile: str | None
) -> Destination | Sequence[Destination]:
    stated = _variable(TRANSPORT_VARIABLE, isolation)
    if stated:
        return addresses(stated)
    if isolation is not None:
        return isolation.transports[0]
    exporters = environment.from_environment(profile)
    if exporters is not None:
        return _FromVariables(exporters)
    return f"file://mttp-runs/{_UNSAFE_IN_PATH.sub('-', run_id)}/"


def addresses(stated: str) -> list[str]:
    """Return the addresses in a value of MTTP_TRANSPORT, which commas separate."""
    return _ADDRESS_SEPARATOR.split(stated.strip())


def _open_targets(routes: Sequence[Route], **views: Any) -> list[ExportTarget]:
    """Open all routes; if one can't be opened, close those that were opened from an address."""
    targets: list[ExportTarget] = []
    try:
        for route in routes:
            targets.append(route.open(**views))
    except BaseException:
        for route, target in zip(routes, targets, strict=False):
            if route.is_address:
                target.transport.shutdown()
        raise
    return targets


# Variables for child processes.


def _variable(variable: str, isolation: IsolatedRecording | None) -> str | None:
    """Return the stripped value of a variable; None if it is empty or was set by the isolated recording."""
    value = os.environ.get(variable)
    is_ours = isolation is not None and value == isolation.published.get(variable)
    return None if value is None or is_ours else value.strip() or None


def _content(isolation: IsolatedRecording | None) -> bool | None:
    """Return MTTP_CONTENT as a flag; raises ConfigureError for a value other than true or false."""
    stated = None if isolation is not None else _variable(CONTENT_VARIABLE, isolation)
    return None if stated is None else bool(parse(flag, stated, CONTENT_VARIABLE))


def _is_stricter(target: ExportTarget) -> bool:
    """Return whether a route withholds more than its transport; a child process can't inherit `redact`."""
    default: Withholding = getattr(target.transport, "withholding", Withholding())
    return default.rule.shows_all and not target.withholding.rule.shows_all


def publish(session: Session, variable: str, value: str) -> None:
    """Set a variable for child processes until the session is closed."""
    before = os.environ.get(variable)
    if before != value:
        os.environ[variable] = value
        session._after_close(_restore, variable, value, before)


def _restore(variable: str, published: str, before: str | None) -> None:
    if os.environ.get(variable) != published:
        return
    if before is None:
        del os.environ[variable]
    else:
        os.environ[variable] = before
