"""Turning recording on: `configure`, and the session that starts without it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.sdk.trace import SpanProcessor
from typing_extensions import ParamSpec, Unpack

from mttp.errors import ConfigureError
from mttp.model import ids
from mttp.otlp.spans.guarding import MisuseError, failed, guarded
from mttp.recording import metrics, observers, provider, self_metrics, signals
from mttp.recording.arguments import check_names
from mttp.recording.current import current_trajectory, inert_episode, inert_step
from mttp.recording.episode_facts import EPISODE_FACTS, EpisodeFacts
from mttp.recording.isolation import IsolatedRecording
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session
from mttp.recording.session_factory import (
    RUN_ID_VARIABLE,
    TRANSPORT_VARIABLE,
    close_with_child,
    close_with_this_child,
    is_off,
    open_session,
    publish,
)
from mttp.transports.export_target import Transport
from mttp.transports.routes import Destination
from mttp.transports.sampling import Sampling

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["RUN_ID_VARIABLE", "TRANSPORT_VARIABLE", "configure", "current_session", "episode", "step"]

_log = logging.getLogger("mttp")

_P = ParamSpec("_P")
_T = TypeVar("_T")
_lock = threading.RLock()
_active: Session | None = None
_implicit = False
_over = False
_apart: IsolatedRecording | None = None
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
    token_ids: bool | None = None,
    redact: Callable[[str, Any], Any] | None = None,
    profile: str | None = None,
    sampling: Sampling | float | None = None,
    steps: str = "auto",
    secret_keys: Sequence[str] | bool | None = None,
    mirror: bool = False,
    meter_provider: MeterProvider | None = None,
    close_timeout: float | None = None,
) -> Session:
    """
    Record to `transport` from here on; the session that comes back closes it, also as a context manager.

    `transport` is an address (`memory://`, `file://runs/`, `http://localhost:4318`, `grpc://localhost:4317`;
    as messages `mttp+file://`, `mttp+http://`, `mttp+https://`, `mttp+stdio://`, `chan://NAME`), a path, an
    object that exports spans, a `Route`, or several of these.
    By default it is what MTTP_TRANSPORT says (several are separated by commas), else what OpenTelemetry's
    variables OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say, else `file://mttp-runs/<run id>/`.
    `exporters` are further transports; `processors` see every span start and end. Those of the SDK will do.

    `run` names the run; `seed` and `config` (anything that JSON can say) are kept with it.
    `content`, `token_ids` and `redact` are as for `Route`, for every transport that says nothing of its own;
    `content` is by default what the variable MTTP_CONTENT says, true or false.
    `profile` says what receivers keep of what they are sent: "jaeger", "tempo", "phoenix", "mlflow",
    "collector", or "strict"; by default it is guessed from their address.
    `sampling` says which episodes collectors get, as a `Sampling` or a ratio from 0 to 1; by default what
    OpenTelemetry's variable OTEL_TRACES_SAMPLER says.
    `steps` says how steps are written: "spans" (each is one), "packed" (many in the columns of one), or
    "auto": a file has those of an environment packed from the start, and every transport those beyond the
    first 1,000 of an episode.
    `secret_keys` are names of values in configuration and metadata that are not recorded, besides api_key,
    token, password and the like; False records all values. By default MTTP_SECRET_KEYS says so.
    `mirror` also passes our spans to the tracer provider that the program has set.
    `meter_provider` is shown how recording fares and what episodes come to, by default the one that is set.
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
    provider.check()
    with _lock:
        if _active is not None and not _active.closed and not _implicit:
            raise ConfigureError(f"{_active!r} is open; close it before configuring another")
        _leave_off()
        _active = open_session(
            transport,
            apart=_apart,
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
            self_metrics.observe(_active, meter_provider)
            metrics.observe(_active, kind, meter_provider)
        _implicit, _over = False, True
        return _active


def _listed(argument: str, given: Sequence[_T]) -> Sequence[_T]:
    if isinstance(given, (list, tuple)):
        return given
    raise ConfigureError(f"{argument}={given!r} is no list; write {argument}=[...]")


def _close_at_exit() -> None:
    """Ahead of all that was registered so far: a tracer provider that we mirror to has to be there still."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    """Close at the interpreter's end, which an exception may have brought about."""
    session = current_session()
    if session is not None:
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        session.__exit__(None if error is None else type(error), error, None)


def current_session() -> Session | None:
    """The session that records, if one is open."""
    return _active if _active is not None and not _active.closed else None


def _failed(what: str, error: Exception, *_: object) -> None:
    session = current_session()
    failed(None if session is None else session._recorder, what, error)


def recorded(otherwise: Callable[..., Any]) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator of a function that records: the session counts what it raises, and `otherwise` answers."""
    return guarded(otherwise, _failed)


def _session() -> Session | None:
    global _active, _implicit
    session = _active
    if session is not None and not session.closed:
        return session
    if _over or (session is not None and _implicit):
        return None
    with _lock:
        if _active is None:
            _active, _implicit = _begin(), True
        return None if _active.closed else _active


def _begin() -> Session:
    lasting = _lasting()
    if lasting is not None:
        close_with_this_child(lasting)
        return lasting
    session = open_session(apart=_apart)
    _close_at_exit()
    if not session.closed:
        _tell(f"mttp: recording episodes to {session.transport!r}")
    return session


def forget() -> None:
    """Begin as a new process would: no session is open, none was configured."""
    global _active, _implicit, _over
    _leave_off()
    _active, _implicit, _over = None, False, False


def _leave_off() -> None:
    """Close the session, unless it is one that stays open all the time."""
    if _active is not None and _active is not _lasting():
        _active.close()


@contextlib.contextmanager
def apart(*own: Transport, alone: bool = False, **options: Any) -> Iterator[IsolatedRecording]:
    """
    Record apart from the rest of the process: what is open is set aside, and goes on at the end of the block.

    A session on the first of the transports is open from the start; `options` are those of `configure`.
    Like one that started by itself it gives way to a session that is configured, but is not closed by that.
    All of the transports, and unless `alone` those of a block around this one, are given what any session
    records that is opened in the block.
    What is still open at its end is closed.

    Raises ConfigureError where the variable OTEL_SDK_DISABLED forbids recording, and what `configure` raises.
    """
    global _active, _implicit, _over, _apart
    with _lock:
        before = _active, _implicit, _over, _apart
        around = () if alone or _apart is None else _apart.transports
        mine = _apart = IsolatedRecording((*own, *around), before=current_session(), outer=_apart)
        _active, _implicit, _over = None, False, False
    try:
        options.setdefault("run_id", ids.run_id())
        mine.session = configure(own[0], **options)
        if mine.session.closed:
            raise ConfigureError("nothing can be recorded: OTEL_SDK_DISABLED is true; unset it")
        publish(mine.session, TRANSPORT_VARIABLE, str(getattr(own[0], "address", "memory://")))
        mine.published = {name: os.environ[name] for name in (RUN_ID_VARIABLE, TRANSPORT_VARIABLE)}
        _implicit, _over = True, False
        yield mine
    finally:
        for session in reversed(mine.opened):
            session.close()
        with _lock:
            _active, _implicit, _over, _apart = before
            if mine.before is not None:
                provider.install(mine.before)


def _lasting() -> Session | None:
    """The session that is open all the time, where recording is apart."""
    lasting = None if _apart is None else _apart.session
    return None if lasting is None or lasting.closed else lasting


def resume() -> None:
    """
    Where recording is apart, begin as a new process would, unless a session was configured and is open.

    The session that starts by itself is then the one that is open all the time.
    """
    global _active, _implicit, _over
    with _lock:
        if _active is None or _active.closed or _active is _lasting():
            _active, _implicit, _over = None, False, False


def _tell(message: str) -> None:
    with contextlib.suppress(Exception):
        print(message, file=sys.stderr)


def may_record() -> bool:
    """Whether an episode that started now would be recorded."""
    return current_session() is not None or (_active is None and not _over)


def recording_session() -> Session | None:
    """
    The session that records; without `configure`, one is started and announced.

    None where recording is over or off, or the default transport can't be opened, which is logged once.
    """
    global _over
    try:
        return _session()
    except Exception as error:
        _over = True
        _log.warning("mttp: nothing is recorded: %s", error)
        return None


def episode(**facts: Unpack[EpisodeFacts]) -> OpenEpisode:
    """
    Start an episode in the session that records; use it as a context manager, or call `end`.

    Of the facts that can be stated most state `env`, `task`, `group`, `seed`, `policy`, `slices`, `inputs` or
    `metadata`; `EpisodeFacts` has all of them. An unknown name is a TypeError.
    Without a session, one is started on the default transport.
    """
    try:
        if not facts.keys() <= EPISODE_FACTS:
            check_names("episode", facts, EPISODE_FACTS)
        session = _active or recording_session()
        return inert_episode() if session is None else session.episode(**facts)
    except MisuseError:
        raise
    except Exception as error:
        _failed("episode", error)
        return inert_episode()


def step(*, start_time: int | None = None, index: int | None = None) -> OpenStep:
    """
    Start the next step of the current agent, or of the current episode where no agent is.

    `start_time` is in nanoseconds since the Unix epoch, by default now; `index` is by default one after the
    last. Outside an episode the step is inert, and that is counted.
    """
    try:
        opened = current_trajectory()
        if opened:
            return opened.step(start_time=start_time, index=index)
        session = current_session()
        if session is not None:
            session._fault("step_outside_episode", "mttp.step() was called where no episode is current")
    except Exception as error:
        _failed("step", error)
    return inert_step()


_held: dict[int, Session] = {}
_registered: Session | None = None


def _before_fork() -> None:
    global _registered
    session = current_session()
    if session is None:
        return
    if session._before_fork():
        _held[threading.get_ident()] = session
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _registered is not session:
        _registered = session
        util.register_after_fork(session, close_with_child)


def _after_fork_in_parent() -> None:
    session = _held.pop(threading.get_ident(), None)
    if session is not None:
        session._after_fork_in_parent()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    _held.clear()
    signals.forget_in_child()
    aside = [] if _apart is None else [session for session in _apart.sessions() if not session.closed]
    for session in dict.fromkeys([*aside, *([] if _active is None else [_active])]):
        session._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
