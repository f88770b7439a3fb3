"""What the C library does with memory that was freed."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

__all__ = ["keep_freed"]

_BYTES = 32 * 2**20 - 2**16
"""The largest piece that it learns from, but for what it adds."""


@cache
def keep_freed() -> None:
    """
    Have the C library keep what is freed for the next time, up to some 64 MB, as numerical programs make it.

    Copies of long arrays, and the texts of spans, are freed many at once. glibc gives that back, and has each
    page of the next ones anew from the system, which takes several times as long as the copying. How much is
    It adapts the threshold to the largest freed block, so one large untouched block is freed.
    Where its own variables say how much, as where the C library is another, nothing changes.
    """
    with suppress(MemoryError):
        bytes(_BYTES)  # zeros, which the system has without anybody writing them
