"""Waiting for what another thread or process does: as short as can be, as long as a loaded machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 100.0
"""How long something may take before it counts as never."""


def eventually(probe: Callable[[], T], *, seconds: float = SECONDS) -> T:
    """What `probe` answers once that is true; the last answer when it never is."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return answer
