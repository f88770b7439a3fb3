"""Appends messages to a file, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from mttp.errors import SendError
from mttp.mist.messages import Message
from mttp.mist.transport.outlets import Lines
from mttp.transports import file


class FileOutlet:
    """Appends messages with a `FileTransport`; a call appends all of its messages or none."""

    is_stream: ClassVar[bool] = True
    is_remote: ClassVar[bool] = False

    def __init__(self, inner: file.FileTransport) -> None:
        self._file = inner
        self._lines = Lines(self)
        self._closed = False

    @property
    def path(self) -> Path:
        """Path of the file, or of the directory with one file per process."""
        return self._file.path

    @property
    def address(self) -> str:
        """The address with an absolute path."""
        return f"mttp+{self._file.address}"

    def send(self, messages: Sequence[Message]) -> None:
        """Append the messages."""
        if self._closed:
            raise SendError(f"{self} is closed", cause="closed")
        self._file.append(self._lines(messages))

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._file.shutdown()

    def after_fork(self) -> None:
        """In a forked child: open a new file in a directory, or share the parent's file."""
        self._file.after_fork()

    def __repr__(self) -> str:
        return f"mttp+{self._file!r}"


def open(address: str, options: Mapping[str, object]) -> FileOutlet:
    """Open a file or a directory, with the options of `file://`; only the owner can read new files."""
    return FileOutlet(file.open(address.removeprefix("mttp+"), options, mode=0o600))
