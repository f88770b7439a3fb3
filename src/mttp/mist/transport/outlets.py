"""What the ways that messages go have in common."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar, Protocol

from mttp.mist.messages import LONGEST_LINE, Message

__all__ = ["Lines", "Outlet"]

_log = logging.getLogger("mttp")


class Outlet(Protocol):
    """One way to one address; it tries once, and its caller tries again where that may help."""

    is_stream: ClassVar[bool]
    """Whether messages are lines of one stream, so that many may go at once, whole or not at all."""
    is_remote: ClassVar[bool]
    """Whether they leave the machine."""

    @property
    def address(self) -> str | None:
        """Where another process finds the same place; None where it does not."""

    def send(self, messages: Sequence[Message], /) -> None:
        """Send them in their order; raises SendError, and OSError where the system refuses."""

    def close(self) -> None:
        """Release what is held, from any thread, also while another sends. A second call does nothing."""

    def after_fork(self) -> None:
        """In a forked child: begin anew, what there is belongs to the parent."""


class Lines:
    """Messages as lines; of the first that the stack's own readers can't read is said so."""

    def __init__(self, place: object) -> None:
        self._place = place
        self.long = 0
        """Lines that the stack's own readers can't read."""

    def __call__(self, messages: Sequence[Message]) -> bytes:
        """The messages, each with the end of its line."""
        written = [message.to_bytes() for message in messages]
        for size in map(len, written):
            if size > LONGEST_LINE:
                self._note(size)
        return b"".join(line + b"\n" for line in written)

    def _note(self, size: int) -> None:
        self.long += 1
        if self.long == 1:
            message = "mttp: %s has a line of %s bytes: it can be read here, the stack's own readers take %s"
            _log.warning(message, self._place, f"{size:,}", f"{LONGEST_LINE:,}")
