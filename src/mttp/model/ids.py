"""
Trace, span and run ids from the operating system's random generator.

Workers that share a seed of `random`, and forked children, would generate colliding ids.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from mttp.model.counters import numbers

__all__ = ["run_id", "span_id", "span_ids", "trace_id"]


_BATCH = 512

_pool: list[int] = []
"""Trace ids generated in advance: a system call for each costs more, and lets other threads run."""


def trace_id() -> int:
    """Return a new trace id, 128 bits, never zero."""
    try:
        return _pool.pop()
    except IndexError:
        halves = struct.unpack(f"{2 * _BATCH}Q", os.urandom(16 * _BATCH))
        _pool.extend(high << 64 | low for high, low in zip(halves[::2], halves[1::2], strict=True) if low)
        return trace_id()


def run_id() -> str:
    """Return a new run id, 16 hex digits."""
    return os.urandom(8).hex()


def span_ids() -> Iterator[int]:
    """
    Return an iterator over new span ids, 64 bits, never zero, counting up from a random one.

    Span ids are unique within a trace, and need not be unpredictable.
    """
    return numbers((int.from_bytes(os.urandom(8), "big") >> 2) + 1)  # counting up stays within 63 bits


span_id: Callable[[], int] = span_ids().__next__
"""Return a new span id, 64 bits, never zero; each process counts from its own random id."""
_default = span_id


def _reset_after_fork() -> None:
    """Discard the parent's ids in a forked child."""
    global span_id, _default
    _pool.clear()
    inherited, _default = _default, span_ids().__next__
    if span_id is inherited:  # a test may have installed predictable ids
        span_id = _default


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
