"""Reads regular files up to a limit; refuses pipes, devices and directories without opening them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from errno import EFBIG, EINVAL
from pathlib import Path
from typing import Final

__all__ = ["pieces", "read"]

_PIECE: Final = 1 << 20
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Opens without blocking: the file may have been replaced by a pipe after the check."""
_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read(path: Path, limit: int) -> bytes:
    """Return the content of a file of up to `limit` bytes; raises OSError like `pieces`."""
    return b"".join(pieces(path, limit))


def pieces(path: Path, limit: int) -> Iterator[bytes]:
    """
    Yield the content of a file in pieces of a mebibyte.

    Raises OSError, with the reason as `strerror`, if it is not a regular file or has more than `limit` bytes.
    """
    if "\0" in str(path):
        raise OSError(EINVAL, "its name has a null character", str(path))
    _refuse(path, path.stat(), limit)
    descriptor = os.open(path, _FLAGS)
    try:
        _refuse(path, os.fstat(descriptor), limit)
        left = limit
        while piece := os.read(descriptor, _PIECE):
            left -= len(piece)  # files under /proc have the size 0, and content
            if left < 0:
                raise _too_large(path, limit)
            yield piece
    except OSError as error:
        error.filename = str(path)  # errors of reading lack it
        raise
    finally:
        os.close(descriptor)


def _refuse(path: Path, status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _KINDS if test(status.st_mode)), "of another kind")
        raise OSError(EINVAL, f"it is {kind}, not a regular file", str(path))
    if status.st_size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(EFBIG, f"it has more than {limit:,} bytes", str(path))
