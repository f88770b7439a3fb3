"""Configures how the C library reuses freed memory."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

__all__ = ["keep_freed"]

_BYTES = 32 * 2**20 - 2**16
"""Largest block from which glibc adapts its threshold, without the header of the block."""


@cache
def keep_freed() -> None:
    """
    Have the C library keep up to about 64 MB of freed memory, as numerical programs do.

    Copies of long arrays, and the texts of spans, are freed many at once. glibc gives that back, and has each
    page of the next ones anew from the system, which takes several times as long as the copying. How much is
    It adapts the threshold to the largest freed block, so one large untouched block is freed.
    Nothing changes if environment variables configure malloc, or with another C library.
    """
    with suppress(MemoryError):
        bytes(_BYTES)  # zero pages, which are never written
