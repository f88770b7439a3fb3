"""The protocol of outlets, which send messages to one address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from mttp.mist.messages import LONGEST_LINE, Message
from mttp.model.log import log


class Outlet(Protocol):
    """Sends messages to one address, without retries."""

    is_stream: ClassVar[bool]
    """Whether messages are lines of a stream, of which several can be written atomically."""
    is_remote: ClassVar[bool]
    """Whether messages may leave the machine."""

    @property
    def address(self) -> str | None:
        """The address for other processes; None if they can't reach it."""

    def send(self, messages: Sequence[Message], /) -> None:
        """Send the messages in order; raises SendError or OSError."""

    def close(self) -> None:
        """Close the outlet, from any thread, even while another one sends; further calls do nothing."""

    def after_fork(self) -> None:
        """In a forked child: replace locks and connections of the parent."""


class Lines:
    """Encodes messages as lines, and logs the first that is too long for the stack's own readers."""

    def __init__(self, place: object) -> None:
        self._place = place
        self.long = 0
        """Number of lines that are too long for the stack's own readers."""

    def __call__(self, messages: Sequence[Message]) -> bytes:
        """Encode messages, each with a line end."""
        written = [message.to_bytes() for message in messages]
        for size in map(len, written):
            if size > LONGEST_LINE:
                self._count_long(size)
        return b"".join(line + b"\n" for line in written)

    def _count_long(self, size: int) -> None:
        self.long += 1
        if self.long == 1:
            message = "mttp: %s has a line of %s bytes; mttp can read it, the stack's own readers accept %s"
            log.warning(message, self._place, f"{size:,}", f"{LONGEST_LINE:,}")
