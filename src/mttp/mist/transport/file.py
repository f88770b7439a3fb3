"""Messages in a file, line by line; many at once are appended whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from mttp.errors import SendError
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Lines
from mttp.transports import file

__all__ = ["FileOutlet", "open"]


class FileOutlet:
    """Appends to a file, as `file://` does with other lines."""

    is_stream: ClassVar[bool] = True
    is_remote: ClassVar[bool] = False

    def __init__(self, inner: file.FileTransport) -> None:
        self._file = inner
        self._lines = Lines(self)
        self._closed = False

    @property
    def path(self) -> Path:
        """The file, or the directory that has one for each process."""
        return self._file.path

    @property
    def address(self) -> str:
        """The file by its absolute path."""
        return f"mttp+{self._file.address}"

    def send(self, messages: Sequence[Message]) -> None:
        """Append them."""
        if self._closed:
            raise SendError(f"{self} is closed", cause="closed")
        self._file.append(self._lines(messages))

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._file.shutdown()

    def after_fork(self) -> None:
        """In a forked child: a file of its own in a directory, else the same."""
        self._file.after_fork()

    def __repr__(self) -> str:
        return f"mttp+{self._file!r}"


def open(address: str, options: Mapping[str, object]) -> FileOutlet:
    """A file, or a directory; its options are those of `file://`. What is made is for its owner alone."""
    return FileOutlet(file.open(address.removeprefix("mttp+"), options, mode=0o600))
