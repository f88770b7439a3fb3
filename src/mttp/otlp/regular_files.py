"""Regular files, read with a limit. Pipes, devices and directories are refused before they are opened."""

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
"""Without waiting: what was a file when it was looked at may be a pipe when it is opened."""
_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read(path: Path, limit: int) -> bytes:
    """The content of a file of up to `limit` bytes; raises OSError as `pieces` does."""
    return b"".join(pieces(path, limit))


def pieces(path: Path, limit: int) -> Iterator[bytes]:
    """
    The content of a file in pieces of a mebibyte.

    Raises OSError, whose `strerror` says why, for what is no regular file or has more than `limit` bytes.
    """
    if "\0" in str(path):
        raise OSError(EINVAL, "its name has a null character", str(path))
    _refuse(path, path.stat(), limit)
    descriptor = os.open(path, _FLAGS)
    try:
        _refuse(path, os.fstat(descriptor), limit)
        left = limit
        while piece := os.read(descriptor, _PIECE):
            left -= len(piece)  # files under /proc say that they are empty, and are not
            if left < 0:
                raise _too_large(path, limit)
            yield piece
    except OSError as error:
        error.filename = str(path)  # which reading does not say
        raise
    finally:
        os.close(descriptor)


def _refuse(path: Path, found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "of another kind")
        raise OSError(EINVAL, f"it is {kind}, not a regular file", str(path))
    if found.st_size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(EFBIG, f"it has more than {limit:,} bytes", str(path))
