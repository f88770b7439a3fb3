"""
The share with which samplers keep an episode, in the trace state of its root.

It is OpenTelemetry's `ot` entry: `th`, the threshold below which traces are dropped, and `rv`, the randomness
that it is compared with, if that is not the end of the trace id.
"""

from __future__ import annotations

import re

__all__ = ["BITS", "of_state", "state"]

BITS = 56
"""The bits of a trace id that OpenTelemetry's samplers compare, so that all samplers agree."""
_DIGITS = BITS // 4
_THRESHOLD = re.compile(rf"(?:.*;)?th:([0-9a-f]{{1,{_DIGITS}}})(?:;.*)?")


def state(threshold: int, randomness: int | None = None) -> str:
    """Return the value of `ot` of an episode that is kept if its randomness is at least `threshold`."""
    digits = f"{threshold:0{_DIGITS}x}".rstrip("0") or "0"
    return f"th:{digits}" if randomness is None else f"rv:{randomness:0{_DIGITS}x};th:{digits}"


def of_state(trace_state: str) -> float | None:
    """Return the share that a trace state states, above 0 and up to 1; None without one."""
    for entry in trace_state.split(",") if trace_state else ():
        key, _, value = entry.strip().partition("=")
        threshold = _THRESHOLD.fullmatch(value) if key == "ot" else None
        if threshold is not None:
            return ((1 << BITS) - int(threshold[1].ljust(_DIGITS, "0"), 16)) / (1 << BITS)
    return None
