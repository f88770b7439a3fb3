"""
Trace, span and run ids from the operating system's randomness.

Training scripts seed `random` alike in every worker and fork freely: ids drawn from either would collide.
"""

from __future__ import annotations

import os
import struct

__all__ = ["run_id", "span_id", "trace_id"]

_AT_ONCE = 256

_pool: list[int] = []
"""Numbers of 64 random bits: asking the system for each of them costs more than the rest of a span."""


def trace_id() -> int:
    """A new trace id, 128 bits, never zero."""
    return span_id() << 64 | span_id()


def span_id() -> int:
    """A new span id, 64 bits, never zero."""
    try:
        return _pool.pop()
    except IndexError:
        return _refill()


def run_id() -> str:
    """A new run id, 16 hex digits."""
    return os.urandom(8).hex()


def _refill() -> int:
    first, *others = filter(None, struct.unpack(f"{_AT_ONCE}Q", os.urandom(8 * _AT_ONCE)))
    _pool.extend(others)
    return int(first)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.clear)
