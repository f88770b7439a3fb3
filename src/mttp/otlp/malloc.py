"""Configures how the C library treats freed memory."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

__all__ = ["keep_freed"]

_BYTES = 32 * 2**20 - 2**16
"""The largest block to which glibc adapts its threshold, less its own overhead."""


@cache
def keep_freed() -> None:
    """
    Make glibc keep up to about 64 MB of freed memory.

    By default glibc returns the memory of freed arrays and texts to the system; to fetch it again page by
    page takes several times as long as copying the data.
    glibc adapts its threshold to the largest freed block, so we free one large untouched block.
    This has no effect with other C libraries, or if glibc's own variables set the threshold.
    """
    with suppress(MemoryError):
        bytes(_BYTES)  # zeros from calloc, whose pages are not touched
