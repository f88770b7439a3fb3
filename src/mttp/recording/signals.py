"""Closes a session on SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from mttp.recording.session import Session

__all__ = ["close_on_sigterm", "forget_in_child"]


def close_on_sigterm(session: Session) -> None:
    """
    Close the session on SIGTERM, and then let the signal end the process.

    Does nothing outside the main thread, or if the signal has a handler, because launchers have their own.
    """
    try:
        current = signal.getsignal(signal.SIGTERM)
        if current is not signal.SIG_DFL and not (isinstance(current, _Handler) and current.is_closed):
            return
        handler = _Handler(session)
        signal.signal(signal.SIGTERM, handler)
    except ValueError:  # not the main thread
        return
    session._after_close(handler.remove)


def forget_in_child() -> None:
    """
    After a fork, in the child: restore the default action, which ends the process at once.

    A pool ends its workers with SIGTERM, and a worker that is blocked would not run a handler in Python.
    """
    if isinstance(signal.getsignal(signal.SIGTERM), _Handler):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Handler:
    """Handles SIGTERM for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def is_closed(self) -> bool:
        """Whether its session is closed, for example by another thread, which can't remove the handler."""
        return self._session.closed

    def __call__(self, _: int, __: FrameType | None) -> None:
        """
        Close the session, and then end the process by the signal.

        A second signal waits for the close too, because launchers often send several.
        """
        try:
            self._session.abort()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def remove(self) -> None:
        """Restore the default action."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may; after the close the handler only ends the process
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
