"""
Trace, span and run ids from the operating system's randomness.

Training scripts seed `random` alike in every worker and fork freely: ids drawn from either would collide.
"""

from __future__ import annotations

import os

__all__ = ["run_id", "span_id", "trace_id"]


def trace_id() -> int:
    """A new trace id, 128 bits, never zero."""
    return int.from_bytes(os.urandom(16), "big") or trace_id()


def span_id() -> int:
    """A new span id, 64 bits, never zero."""
    return int.from_bytes(os.urandom(8), "big") or span_id()


def run_id() -> str:
    """A new run id, 16 hex digits."""
    return os.urandom(8).hex()
