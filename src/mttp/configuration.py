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
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from mttp import ids, provenance, transports
from mttp.errors import ConfigureError
from mttp.pipeline import Transport
from mttp.recorder import OpenEpisode, OpenStep, current_trajectory, inert_episode
from mttp.session import Session

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
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_KINDS = ("train", "eval", "replay")


def configure(
    transport: str | os.PathLike[str] | Transport | None = None,
    *,
    run: str | None = None,
    run_id: str | None = None,
    kind: str = "train",
    seed: int | str | None = None,
    config: object = None,
    algorithm: str | None = None,
) -> Session:
    """
    Record to `transport` from here on; the session that comes back closes it, also as a context manager.

    `transport` is an address (`memory://`, `file://runs/a.jsonl`, `file://runs/`), a path, or an object that
    exports spans; by default what the variable MTTP_TRANSPORT says, else `file://mttp-runs/<run id>/`.
    `run` names the run; `seed` and `config` (anything that JSON can say) are kept with it.
    Processes that are started from here on join the run, where they don't configure another.
    A session that started by itself gives way.

    Raises ConfigureError when a session is open already or an argument is wrong, and TransportError when the
    transport can't be opened.
    """
    global _active, _implicit, _over
    if kind not in _KINDS:
        raise ConfigureError(f"kind {kind!r} is not one of {', '.join(_KINDS)}")
    with _lock:
        if _active is not None and not _active.closed and not _implicit:
            raise ConfigureError(f"{_active!r} is open; close it before configuring another")
        if _active is not None:
            _active.close()
        _active = _open(
            transport, run=run, run_id=run_id, kind=kind, seed=seed, config=config, algorithm=algorithm
        )
        _implicit, _over = False, True
        return _active


def _open(
    transport: str | os.PathLike[str] | Transport | None,
    *,
    run: str | None,
    run_id: str | None,
    config: object,
    **facts: Any,
) -> Session:
    launched = provenance.launch()
    launch_id = launched.pop("run_id", None)
    identity = str(run_id or os.environ.get(RUN_ID_VARIABLE) or launch_id or ids.run_id())
    facts = {"name": run, **facts, **launched}
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        _log.warning("mttp: nothing is recorded: OTEL_SDK_DISABLED is true")
        return Session(None, run_id=identity, facts=facts)
    if transport is None:
        transport = (
            os.environ.get(TRANSPORT_VARIABLE) or f"file://mttp-runs/{_NOT_IN_A_NAME.sub('-', identity)}/"
        )
    if isinstance(transport, os.PathLike):
        transport = f"file://{quote(os.fsdecode(transport))}"
    opened = transports.open(transport) if isinstance(transport, str) else _checked(transport)
    session = Session(opened, run_id=identity, facts=facts, config=config)
    _publish(session, RUN_ID_VARIABLE, identity)
    address = getattr(opened, "address", None)
    if address is not None:
        _publish(session, TRANSPORT_VARIABLE, str(address))
    _close_at_exit()
    if "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None:
        _close_with_child(session)
    return session


def _checked(transport: Transport) -> Transport:
    if isinstance(transport, type) or not callable(getattr(transport, "export", None)):
        raise ConfigureError(
            f"transport {transport!r} is neither an address nor an object that exports spans; "
            "write 'file://runs/a.jsonl', or make an exporter"
        )
    return transport


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
            _active = _open(None, run=None, run_id=None, kind="train", seed=None, config=None)
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
    """
    Start the next step of the current agent, or of the current episode where no agent is.

    Outside an episode it is inert, and that is counted.
    """
    opened = current_trajectory()
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
