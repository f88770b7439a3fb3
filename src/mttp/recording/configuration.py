"""`configure`, and the implicit session that starts without it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.sdk.trace import SpanProcessor
from typing_extensions import ParamSpec, Unpack

from mttp.codec.fields import checked_text
from mttp.codec.plain import scalar_text
from mttp.errors import ConfigureError
from mttp.model import ids
from mttp.model.interrupts import raise_interrupt
from mttp.model.log import log
from mttp.model.switches import check_switches
from mttp.otlp.spans.guarding import failed, guarded
from mttp.recording import metrics, observers, provider, signals
from mttp.recording.arguments import EPISODE_FACTS, EpisodeFacts, check_names
from mttp.recording.current import current_trajectory, inert_episode, inert_step
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session
from mttp.recording.session_factory import (
    RUN_ID_VARIABLE,
    TRANSPORT_VARIABLE,
    IsolatedRecording,
    announce,
    close_with_child,
    close_with_this_child,
    is_off,
    open_session,
    publish,
)
from mttp.semconv import attributes as a
from mttp.semconv.registry import known_values
from mttp.transports.export_target import Transport
from mttp.transports.routes import Destination
from mttp.transports.sampling import Sampling

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["RUN_ID_VARIABLE", "TRANSPORT_VARIABLE", "configure", "current_session", "episode", "step"]


_P = ParamSpec("_P")
_T = TypeVar("_T")
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
        _active = open_session(
            transport,
            isolation=_isolation,
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


def _listed(argument: str, given: Sequence[_T]) -> Sequence[_T]:
    if isinstance(given, (list, tuple)):
        return given
    raise ConfigureError(f"{argument}={scalar_text(given):.80} is not a list; write {argument}=[...]")


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
    session = open_session(isolation=_isolation)
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


@contextlib.contextmanager
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
    session = _active or recording_session()
    if session is not None:
        return session.episode(**facts)
    check_names("episode", facts, EPISODE_FACTS)
    return inert_episode()


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
