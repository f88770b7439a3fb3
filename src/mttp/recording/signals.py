"""What becomes of a session when its process is told to terminate."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from mttp.recording.session import Session

__all__ = ["close_on_sigterm", "forget_in_child"]


def close_on_sigterm(session: Session) -> None:
    """
    Close the session on SIGTERM, then let the signal do what it would have done.

    Only from the main thread, and only where the signal has no handler: launchers have their own.
    """
    try:
        found = signal.getsignal(signal.SIGTERM)
        if found is not signal.SIG_DFL and not (isinstance(found, _Handler) and found.is_over):
            return
        handler = _Handler(session)
        signal.signal(signal.SIGTERM, handler)
    except ValueError:  # only the main thread may
        return
    session._after_close(handler.withdraw)


def forget_in_child() -> None:
    """
    After a fork, in the child: let the signal end it at once, as it would without us.

    A pool ends its workers so, and a worker that slept through a signal handled in Python would never end.
    """
    if isinstance(signal.getsignal(signal.SIGTERM), _Handler):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Handler:
    """Handles SIGTERM, for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def is_over(self) -> bool:
        """Whether its session is closed: by another thread, which could not withdraw it."""
        return self._session.closed

    def __call__(self, _: int, __: FrameType | None) -> None:
        """
        Close the session; the process then ends by the signal.

        A second signal, or one while the session closes, waits along: launchers often send several.
        """
        try:
            self._session.abort()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def withdraw(self) -> None:
        """Leave the signal as it was found."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may; with its session closed the handler passes the signal on
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
