"""
Trace, span and run ids from the operating system's randomness.

Training scripts seed `random` alike in every worker and fork freely: ids drawn from either would collide.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from mttp.model.counters import numbers

__all__ = ["run_id", "span_id", "span_ids", "trace_id"]


_AT_ONCE = 64

_pool: list[int] = []
"""Trace ids to come: asking the system for each of them takes several times as long."""


def trace_id() -> int:
    """A new trace id, 128 bits, never zero."""
    try:
        return _pool.pop()
    except IndexError:
        return _refill()


def _refill() -> int:
    numbers = struct.unpack(f"{2 * _AT_ONCE}Q", os.urandom(16 * _AT_ONCE))
    _pool.extend(high << 64 | low for high, low in zip(numbers[::2], numbers[1::2], strict=True) if low)
    return trace_id()


def run_id() -> str:
    """A new run id, 16 hex digits."""
    return os.urandom(8).hex()


def span_ids() -> Iterator[int]:
    """
    New span ids, 64 bits, never zero, counted from a random one on.

    A span's id is its own within the trace, and need not be a secret.
    """
    return numbers((int.from_bytes(os.urandom(8), "big") >> 2) + 1)  # so that none gets beyond 63 bits


span_id: Callable[[], int] = span_ids().__next__
"""A new span id, 64 bits, never zero; each process counts from a place of its own."""
_ours = span_id


def _begin_anew() -> None:
    """In a forked child, where the numbers that come next are the parent's."""
    global span_id, _ours
    _pool.clear()
    parents, _ours = _ours, span_ids().__next__
    if span_id is parents:  # and not somebody's who wants them to be known
        span_id = _ours


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
