"""Ends commands that wait, by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["until_interrupted"]


@contextmanager
def until_interrupted() -> Iterator[None]:
    """
    End the block quietly at KeyboardInterrupt, and at SIGTERM, by which containers are stopped.

    The program then ends: further ones of these signals are ignored, so that nothing disturbs its end.
    """
    if threading.current_thread() is not threading.main_thread():  # only it may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        if signal.getsignal(signal.SIGTERM) is signal.default_int_handler:
            signal.signal(signal.SIGTERM, before)
