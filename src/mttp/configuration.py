"""Turning recording on: `configure`, and the session that starts by itself where nobody did."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mttp import ids, provenance, transports
from mttp.errors import ConfigureError, MttpError
from mttp.pipeline import Transport
from mttp.recorder import OpenEpisode, OpenStep, current_episode, inert_episode
from mttp.session import RUN_ID_VARIABLE, Session, tell

__all__ = ["configure", "current_session", "episode", "step"]

_log = logging.getLogger("mttp")

TRANSPORT_VARIABLE = "MTTP_TRANSPORT"
"""The transport, where `configure` is not told one."""

_lock = threading.RLock()
_active: Session | None = None
_implicit = False
_over = False
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
    given = run_id or os.environ.get(RUN_ID_VARIABLE) or launched.pop("run_id", None)
    identity = str(given or ids.run_id())
    target = None if _disabled() else _transport(transport, identity)
    known = {"name": run, **facts, **launched, "minted": not given}
    session = Session(target, run_id=identity, facts=known, config=config)
    if target is not None:
        if not given:
            os.environ[RUN_ID_VARIABLE] = identity
        _close_at_exit(session)
    return session


def _disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _transport(transport: str | os.PathLike[str] | Transport | None, run_id: str) -> Transport:
    if transport is None:
        transport = os.environ.get(TRANSPORT_VARIABLE) or f"file://mttp-runs/{run_id}/"
    if isinstance(transport, os.PathLike):
        transport = f"file://{os.fspath(transport)}{'/' if Path(transport).is_dir() else ''}"
    if isinstance(transport, str):
        return transports.open(transport)
    if not callable(getattr(transport, "export", None)):
        raise ConfigureError(
            f"transport {transport!r} is neither an address nor an object that exports spans"
        )
    return transport


def _close_at_exit(session: Session) -> None:
    atexit.register(session.close)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing"].parent_process() is not None:
        # multiprocessing's children leave without running atexit handlers
        util.Finalize(None, session.close, exitpriority=100)


def current_session() -> Session | None:
    """The session that records, if one is open."""
    return _active if _active is not None and not _active.closed else None


def ensure_session() -> Session | None:
    """
    The session that records; one is started where nobody configured any.

    None after a configured session was closed: recording is over until `configure` is called again.
    Raises TransportError when the default transport can't be opened.
    """
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
            if _active.transport is not None:
                tell(f"mttp: recording episodes to {_active.transport!r}")
        return None if _active.closed else _active


def forget() -> None:
    """Begin as a new process would: no session is open, none was configured."""
    global _active, _implicit, _over
    if _active is not None:
        _active.close()
    _active, _implicit, _over = None, False, False


def _quiet_session() -> Session | None:
    global _over
    try:
        return ensure_session()
    except MttpError as error:
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
    session = _quiet_session()
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


def _before_fork() -> None:
    """Have multiprocessing's forked children close their part of the session; they run no atexit handlers."""
    session, util = current_session(), sys.modules.get("multiprocessing.util")
    if session is not None and util is not None:
        util.register_after_fork(session, _finalize_child)


def _finalize_child(session: Session) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, session.close, exitpriority=100)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    if _active is not None:
        _active.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
