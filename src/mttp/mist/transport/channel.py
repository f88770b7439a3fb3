"""Messages to the other end of a channel, within the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal
from urllib.parse import unquote

from mttp.errors import TransportError
from mttp.mist.channels import enter
from mttp.mist.messages import Message
from mttp.transports.options import Positive, path_of, take

__all__ = ["ChannelOutlet", "open"]


class ChannelOutlet:
    """
    An end of the channel of that name, which holds `capacity` messages.

    Where it is full, `full` says whether the sender waits, or the message is turned down.
    """

    is_stream: ClassVar[bool] = False
    is_remote: ClassVar[bool] = False
    address: ClassVar[str | None] = None
    """A channel has no receiver in another process."""

    def __init__(
        self, name: str, *, capacity: Positive | None = None, full: Literal["block", "refuse"] = "block"
    ) -> None:
        self._name, self._capacity, self._full = name, capacity, full
        self.after_fork()

    def send(self, messages: Sequence[Message]) -> None:
        """Put them in, one by one."""
        for message in messages:
            self._entrance.put(message)

    def close(self) -> None:
        """Put nothing more in; once all ends like this are closed, the other end comes to an end."""
        self._entrance.close()

    def after_fork(self) -> None:
        """In a forked child: a channel of its own."""
        self._entrance = enter(self._name, capacity=self._capacity, wait=self._full == "block")

    def __repr__(self) -> str:
        return f"chan://{self._name}"


def open(address: str, options: Mapping[str, object]) -> ChannelOutlet:
    """One end of a named channel."""
    name = unquote(path_of(address))
    if not name:
        raise TransportError("no name; write chan://NAME, as at the other end")
    return ChannelOutlet(name, **take(options, ChannelOutlet))
