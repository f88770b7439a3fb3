"""`configure`, the implicit session that starts without it, and isolated recordings."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.sdk.trace import SpanProcessor
from typing_extensions import ParamSpec, Unpack

from mttp.codec.fields import checked_text
from mttp.codec.plain import scalar_text, text
from mttp.codec.secrets import VARIABLE as SECRETS_VARIABLE
from mttp.codec.secrets import Secrets
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError, MttpError, TransportError
from mttp.model import ids
from mttp.model.interrupts import raise_interrupt, suppress_errors
from mttp.model.log import log
from mttp.model.switches import check_switches
from mttp.otlp.spans import AUTO, STEP_MODES
from mttp.otlp.spans.guarding import failed, guarded
from mttp.recording import metrics, observers, provenance, provider, signals
from mttp.recording.arguments import EPISODE_FACTS, EpisodeFacts, check_names
from mttp.recording.current import current_trajectory, inert_episode, inert_step
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session, start_episode
from mttp.semconv import attributes as a
from mttp.semconv.registry import known_values
from mttp.transports import environment
from mttp.transports.export_target import ExportTarget, Transport
from mttp.transports.options import flag, parse
from mttp.transports.routes import Destination, Route, check
from mttp.transports.sampling import Sampling, from_environment

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = [
    "CONTENT_VARIABLE",
    "RUN_ID_VARIABLE",
    "TRANSPORT_VARIABLE",
    "IsolatedRecording",
    "addresses",
    "configure",
    "current_session",
    "episode",
    "is_off",
    "step",
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
_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        inner = [target.transport for target in targets]
        others = [other for other in self.transports if not any(other is transport for transport in inner)]
        return [*targets, *(replace(ExportTarget.of(other), owned=False) for other in others)]

    def sessions(self) -> list[Session]:
        """Return all sessions of this block and of the enclosing ones."""
        outer = [] if self.outer is None else self.outer.sessions()
        return [*self.opened, *([] if self.before is None else [self.before]), *outer]


_lock = threading.RLock()
_active: Session | None = None
_implicit = False
_is_implicit_off = False
_isolation: IsolatedRecording | None = None


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
    token_ids: bool | None = None,
    redact: Callable[[str, Any], Any] | None = None,
    profile: str | None = None,
    sampling: Sampling | float | None = None,
    steps: str = "auto",
    secret_keys: Sequence[str] | bool | None = None,
    provenance: bool = True,
    mirror: bool = False,
    meter_provider: MeterProvider | None = None,
    close_timeout: float | None = None,
) -> Session:
    """
    Start to record to `transport`, and return the session: a context manager that closes the transport.

    `transport` is an address (`memory://`, `file://runs/`, `http://localhost:4318`, `grpc://localhost:4317`;
    as messages `mttp+file://`, `mttp+http://`, `mttp+https://`, `mttp+stdio://`, `chan://NAME`), a path, a
    span exporter, a `Route`, or a list of these.
    The default is the variable MTTP_TRANSPORT (addresses separated by commas), else OpenTelemetry's variables
    OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT, else `file://mttp-runs/<run id>/`.
    `exporters` are further transports, and `processors` are called when spans start and end; exporters and
    processors of the OpenTelemetry SDK work.

    `run` names the run; `seed` and `config` (any value that JSON can represent) are recorded with it.
    `content`, `token_ids` and `redact` are as for `Route`, and apply to transports that do not set their own;
    the default of `content` is the variable MTTP_CONTENT, true or false.
    `profile` describes what receivers keep: "jaeger", "tempo", "phoenix", "mlflow", "collector", or "strict";
    by default it is derived from the receiver's address.
    `sampling` selects the episodes that collectors get: a `Sampling`, or a ratio from 0 to 1; the default is
    OpenTelemetry's variable OTEL_TRACES_SAMPLER.
    `steps` selects how steps are written: "spans" (one span per step), "packed" (columns of one span), or
    "auto": environment steps are packed in files, and elsewhere after the first 1,000 of an episode.
    `secret_keys` are names of values in configuration and metadata that are not recorded, in addition to
    names such as api_key, token and password; False records all values. The default is MTTP_SECRET_KEYS.
    `provenance` is whether code revision, packages, interpreter, host and accelerators are recorded.
    `mirror` also passes mttp's spans to the tracer provider that the program has set.
    `meter_provider` gets the metrics of episodes and of recording itself, by default the global one.
    `close_timeout` is the time to write the last spans, by default 30 seconds for files, 10 for collectors.

    Spans of other instrumentations are recorded too, unless the program set a tracer provider earlier.
    Child processes join the run unless they configure their own session.
    An implicit session, which started without `configure`, is closed.

    Raises ConfigureError if a session is already open or an argument is wrong, and TransportError if the
    transport can't be opened.
    """
    global _active, _implicit, _is_implicit_off
    check_switches(ConfigureError, {"provenance": provenance, "mirror": mirror})
    kind = checked_text(ConfigureError, "kind", kind)
    if kind not in (kinds := known_values(a.RUN_KIND)):
        raise ConfigureError(f"kind {scalar_text(kind):.80} is not one of {', '.join(kinds)}")
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise ConfigureError(f"meter_provider={scalar_text(meter_provider):.80} is not a meter provider")
    provider.check()
    with _lock:
        if _active is not None and not _active.closed and not _implicit:
            raise ConfigureError(f"{_active!r} is open; close it before configuring another")
        _close_active()
        _active = _open_session(
            transport,
            exporters=[
                *_listed("exporters", exporters),
                *([provider.mirror()] if mirror and not is_off() else []),
            ],
            content=content,
            token_ids=token_ids,
            redact=redact,
            profile=profile,
            close_timeout=close_timeout,
            processors=observers.checked(_listed("processors", processors)),
            sampling=sampling,
            steps=steps,
            secret_keys=secret_keys,
            provenance_facts=provenance,
            run=run,
            run_id=run_id,
            kind=kind,
            seed=seed,
            config=config,
            algorithm=algorithm,
        )
        _close_at_exit()
        if not _active.closed:
            provider.install(_active)
            signals.close_on_sigterm(_active)
            metrics.observe(_active, kind, meter_provider)
        _implicit, _is_implicit_off = False, True
        return _active


def _listed(argument: str, values: Sequence[_T]) -> Sequence[_T]:
    if isinstance(values, (list, tuple)):
        return values
    raise ConfigureError(f"{argument}={scalar_text(values):.80} is not a list; write {argument}=[...]")


def _close_at_exit() -> None:
    """Close the session before earlier atexit handlers run: a mirrored tracer provider must still work."""
    atexit.unregister(_close_session)
    atexit.register(_close_session)


def _close_session() -> None:
    """Close the session at exit, with the uncaught exception if there is one."""
    session = current_session()
    if session is not None:
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        session.__exit__(None if error is None else type(error), error, None)


def current_session() -> Session | None:
    """Return the open session, or None."""
    return _active if _active is not None and not _active.closed else None


def _failed(what: str, error: Exception, *_: object) -> None:
    session = current_session()
    failed(None if session is None else session._recorder, what, error)


def never_raises(fallback: Callable[..., Any]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a function: its exceptions are counted as faults, and `fallback` returns the result."""
    return guarded(fallback, _failed)


def _session() -> Session | None:
    global _active, _implicit
    session = _active
    if session is not None and not session.closed:
        return session
    if _is_implicit_off or (session is not None and _implicit):
        return None
    with _lock:
        if _active is None:
            _active, _implicit = _start_implicit(), True
        return None if _active.closed else _active


def _start_implicit() -> Session:
    isolated = _isolated_session()
    if isolated is not None:
        close_with_this_child(isolated)
        return isolated
    session = _open_session()
    _close_at_exit()
    if not session.closed:
        announce(f"mttp: recording episodes to {session.transport!r}")
    return session


def forget() -> None:
    """Close the session, and return to the state of a new process."""
    global _active, _implicit, _is_implicit_off
    _close_active()
    _active, _implicit, _is_implicit_off = None, False, False


def _close_active() -> None:
    """Close the session, unless it belongs to an isolated recording."""
    if _active is not None and _active is not _isolated_session():
        _active.close()


@contextmanager
def isolated(*own: Transport, alone: bool = False, **options: Any) -> Iterator[IsolatedRecording]:
    """
    Set the open session aside during the block, and record to these transports instead.

    A session on the first transport is open from the start; `options` are those of `configure`.
    `configure` may replace it within the block, without closing it.
    All transports, and those of enclosing blocks unless `alone`, also get the spans of every session that is
    opened in the block.
    Sessions that are still open at the end of the block are closed.

    Raises ConfigureError if OTEL_SDK_DISABLED is true, and the errors of `configure`.
    """
    global _active, _implicit, _is_implicit_off, _isolation
    with _lock:
        before = _active, _implicit, _is_implicit_off, _isolation
        outer = () if alone or _isolation is None else _isolation.transports
        isolation = _isolation = IsolatedRecording((*own, *outer), before=current_session(), outer=_isolation)
        _active, _implicit, _is_implicit_off = None, False, False
    try:
        options.setdefault("run_id", ids.run_id())
        isolation.session = configure(own[0], **options)
        if isolation.session.closed:
            raise ConfigureError("nothing can be recorded: OTEL_SDK_DISABLED is true; unset it")
        publish(isolation.session, TRANSPORT_VARIABLE, str(getattr(own[0], "address", "memory://")))
        isolation.published = {name: os.environ[name] for name in (RUN_ID_VARIABLE, TRANSPORT_VARIABLE)}
        _implicit, _is_implicit_off = True, False
        yield isolation
    finally:
        for session in reversed(isolation.opened):
            session.close()
        with _lock:
            _active, _implicit, _is_implicit_off, _isolation = before
            if isolation.before is not None:
                provider.install(isolation.before)


def _isolated_session() -> Session | None:
    """The session that an isolated recording has opened, while it is open."""
    isolated = None if _isolation is None else _isolation.session
    return None if isolated is None or isolated.closed else isolated


def resume() -> None:
    """
    In an isolated recording, return to the state of a new process unless a configured session is open.

    The implicit session is then the one that the isolated recording has opened.
    """
    global _active, _implicit, _is_implicit_off
    with _lock:
        if _active is None or _active.closed or _active is _isolated_session():
            _active, _implicit, _is_implicit_off = None, False, False


def may_record() -> bool:
    """Return whether an episode that starts now is recorded."""
    return current_session() is not None or (_active is None and not _is_implicit_off)


def recording_session() -> Session | None:
    """
    Return the open session; without `configure`, start an implicit one and print its transport.

    Returns None if recording has ended or is off. Returns None with a warning, once, if the default transport
    can't be opened.
    """
    global _is_implicit_off
    try:
        return _session()
    except Exception as error:
        raise_interrupt(error)
        _is_implicit_off = True
        log.warning("mttp: nothing is recorded: %s", error)
        return None


@never_raises(lambda **_: inert_episode())
def episode(**facts: Unpack[EpisodeFacts]) -> OpenEpisode:
    """
    Start an episode in the open session; use it as a context manager, or call `end`.

    Common arguments are `env`, `task`, `group`, `seed`, `policy`, `slices`, `inputs` and `metadata`;
    `EpisodeFacts` lists all of them. An unknown name raises TypeError.
    Without a session, an implicit one starts on the default transport.
    """
    check_names("episode", facts, EPISODE_FACTS)
    session = _active or recording_session()
    return inert_episode() if session is None or session.closed else start_episode(session._recorder, facts)


@never_raises(lambda **_: inert_step())
def step(*, start_time: int | None = None, index: int | None = None) -> OpenStep:
    """
    Start the next step of the current agent, or of the current episode if no agent is current.

    `start_time` is in nanoseconds since the Unix epoch, by default now; `index` is by default one more than
    the last step's. Outside an episode the step is inert, and the fault step_outside_episode is counted.
    """
    opened = current_trajectory()
    if opened:
        return opened.step(start_time=start_time, index=index)
    session = current_session()
    if session is not None:
        session._fault("step_outside_episode", "mttp.step() was called without a current episode")
    return inert_step()


def _open_session(
    transport: Destination | Sequence[Destination] | None = None,
    *,
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
    Open a session; the arguments are those of `mttp.configure`.

    Raises ConfigureError if an argument is wrong, and TransportError if a transport can't be opened.
    """
    steps = checked_text(ConfigureError, "steps", steps)
    if steps not in STEP_MODES:
        raise ConfigureError(f"steps={scalar_text(steps):.80} is not one of {', '.join(STEP_MODES)}")
    launch_facts = provenance.launch()
    is_first = RUN_ID_VARIABLE not in os.environ and not launch_facts.get("rank")
    launch_id = launch_facts.pop("run_id", None)
    stated_id = checked_text(ConfigureError, "run_id", run_id)
    identity = text(stated_id or _variable(RUN_ID_VARIABLE) or launch_id or ids.run_id(), [])
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
        routes = [*_routes(transport, identity, profile), *map(Route, exporters)]
    if not routes and not processors:
        log.warning("mttp: nothing is recorded: OTEL_TRACES_EXPORTER selects no exporter")
        return Session([], run_id=identity, facts=facts)
    if not isinstance(sampling, Sampling):
        sampling = from_environment() if sampling is None else Sampling(sampling)
    secrets = Secrets.stated(secret_keys)
    content = _content() if content is None else content
    content_options = {"content": content, "token_ids": token_ids}
    check(content_options, redact, close_timeout)
    try:
        with _asking(transport):
            opened = _open_targets(routes, **content_options, redact=redact, close_timeout=close_timeout)
    except TransportError as error:
        if transport is None and _variable(TRANSPORT_VARIABLE):
            raise TransportError(f"{TRANSPORT_VARIABLE}: {error}") from error.__cause__
        raise
    targets = opened if _isolation is None else _isolation.with_others(opened)
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
    if _isolation is not None:
        _isolation.opened.append(session)
    publish(session, RUN_ID_VARIABLE, identity)
    own_addresses = [address for target in opened if (address := getattr(target.transport, "address", None))]
    if own_addresses:
        publish(session, TRANSPORT_VARIABLE, ",".join(map(str, own_addresses)))
    if any(map(_is_stricter, opened)):
        publish(session, CONTENT_VARIABLE, "false")
    if str(secrets):
        publish(session, SECRETS_VARIABLE, str(secrets))
    close_with_this_child(session)
    if _isolation is None and is_first and content is None:
        _announce_withheld(routes, opened)
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
    transport: Destination | Sequence[Destination] | None, run_id: str, profile: str | None
) -> list[Route]:
    """Return the routes from the argument, MTTP_TRANSPORT, OpenTelemetry's variables, or the default."""
    if transport is None:
        transport = _default_transport(run_id, profile)
    several: Sequence[Any] = transport if isinstance(transport, (list, tuple)) else [transport]
    if not several and not isinstance(transport, _FromVariables):
        raise ConfigureError("transport is an empty list; name a transport or omit the argument")
    routes = [item if isinstance(item, Route) else Route(item) for item in several]
    return routes if profile is None else _profiled(routes, profile)


def _profiled(routes: Sequence[Route], profile: str) -> list[Route]:
    """Return the routes with the profile on those to receivers; raises ConfigureError without a receiver."""
    profiled = [route.with_profile(profile) for route in routes]
    if not any(route.has_profile for route in profiled):
        raise ConfigureError(
            f"profile={scalar_text(profile):.80} is for receivers, http://HOST:PORT or grpc://HOST:PORT; "
            f"there is none in {', '.join(map(repr, routes)) or 'the transports'}"
        )
    return profiled


class _FromVariables(list[Transport]):
    """Transports from OpenTelemetry's variables; may be empty."""


def _default_transport(run_id: str, profile: str | None) -> Destination | Sequence[Destination]:
    setting = _variable(TRANSPORT_VARIABLE)
    if setting:
        return addresses(setting)
    if _isolation is not None:
        return _isolation.transports[0]
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


def _variable(variable: str) -> str | None:
    """Return the stripped value of a variable; None if it is empty or was set by the isolated recording."""
    value = os.environ.get(variable)
    is_ours = _isolation is not None and value == _isolation.published.get(variable)
    return None if value is None or is_ours else value.strip() or None


def _content() -> bool | None:
    """Return MTTP_CONTENT as a flag; raises ConfigureError for a value other than true or false."""
    setting = None if _isolation is not None else _variable(CONTENT_VARIABLE)
    return None if setting is None else bool(parse(flag, setting, CONTENT_VARIABLE))


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


_held_for_fork: dict[int, Session] = {}
_registered: Session | None = None


def _before_fork() -> None:
    global _registered
    session = current_session()
    if session is None:
        return
    if session._recorder.hold():
        _held_for_fork[threading.get_ident()] = session
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _registered is not session:
        _registered = session
        util.register_after_fork(session, close_with_child)


def _after_fork_in_parent() -> None:
    session = _held_for_fork.pop(threading.get_ident(), None)
    if session is not None:
        session._recorder.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    _held_for_fork.clear()
    signals.forget_in_child()
    others = (
        [] if _isolation is None else [session for session in _isolation.sessions() if not session.closed]
    )
    for session in dict.fromkeys([*others, *([] if _active is None else [_active])]):
        session._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
