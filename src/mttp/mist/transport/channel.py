"""Sends messages to a channel of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal
from urllib.parse import unquote

from mttp.errors import TransportError
from mttp.mist.channels import open_writer
from mttp.mist.messages import Message
from mttp.transports.options import Positive, path_of, take


class ChannelOutlet:
    """
    Writes to the channel `name`, which holds `capacity` messages.

    If the channel is full, `full="block"` waits for space and `full="refuse"` raises SendError.
    """

    is_stream: ClassVar[bool] = False
    is_remote: ClassVar[bool] = False
    address: ClassVar[str | None] = None
    """None: other processes can't reach a channel."""

    def __init__(
        self, name: str, *, capacity: Positive | None = None, full: Literal["block", "refuse"] = "block"
    ) -> None:
        self._name, self._capacity, self._full = name, capacity, full
        self.after_fork()

    def send(self, messages: Sequence[Message]) -> None:
        """Put the messages into the channel."""
        for message in messages:
            self._writer.put(message)

    def close(self) -> None:
        """Close this writer; a reader ends when all writers are closed and the channel is empty."""
        self._writer.close()

    def after_fork(self) -> None:
        """In a forked child: write to a new channel of the child."""
        self._writer = open_writer(self._name, capacity=self._capacity, wait=self._full == "block")

    def __repr__(self) -> str:
        return f"chan://{self._name}"


def open(address: str, options: Mapping[str, object]) -> ChannelOutlet:
    """Open a writer to a named channel."""
    name = unquote(path_of(address))
    if not name:
        raise TransportError("no name; write chan://NAME, as at the other end")
    return ChannelOutlet(name, **take(options, ChannelOutlet))
