"""Descriptors that stay open in a program that may close any number, and reuse it for a file of its own."""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Descriptor", "above_standard"]

_STANDARD = 2
"""The largest number of a standard stream."""


def above_standard(number: int) -> int:
    """
    Return the descriptor, moved if its number is that of a standard stream.

    Where a daemon has closed these, the next file gets such a number, and with it what libraries print.
    """
    if number > _STANDARD or fcntl is None:
        return number
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _STANDARD + 1)
    finally:
        os.close(number)


class Descriptor:
    """A number, and the file for which it was opened; its number is above those of the standard streams."""

    def __init__(self, number: int) -> None:
        """Take over a descriptor; raises OSError, and then it is closed."""
        self.number = above_standard(number)
        try:
            self.opened = os.fstat(self.number)
            """The status of the file when it was opened."""
            self._flags = _flags(self.number)
        except BaseException:
            os.close(self.number)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether the number is still open for the same file; else the program has closed it."""
        try:
            return os.path.samestat(os.fstat(self.number), self.opened) and self._flags == _flags(self.number)
        except OSError:
            return False

    def close(self) -> None:
        """Close the number, unless it is another file's by now."""
        if self.is_ours:
            os.close(self.number)


def _flags(number: int) -> int:
    """Return how the file was opened: the inode of a deleted file may be another file's by now."""
    if fcntl is None:
        return 0
    return fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
