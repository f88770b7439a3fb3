"""Ends commands that wait, by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["until_interrupted"]


@contextmanager
def until_interrupted() -> Iterator[None]:
    """End the block quietly at KeyboardInterrupt, and at SIGTERM, by which containers are stopped."""
    if threading.current_thread() is not threading.main_thread():  # only it may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
