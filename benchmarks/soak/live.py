"""Memory in use by this process, without what its allocators keep for reuse."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

__all__ = ["live"]


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
        )
    )


def live() -> dict[str, int]:
    """Return the blocks that Python has allocated, and the bytes in use of glibc's malloc, if it is there."""
    found = {"blocks": sys.getallocatedblocks()}
    with suppress(AttributeError, OSError):
        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = _Mallinfo
        info = mallinfo()
        found["malloc"] = info.uordblks + info.hblkhd
    return found
