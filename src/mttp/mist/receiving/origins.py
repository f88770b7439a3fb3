"""The protocol of message sources, from which a `Receiver` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from mttp.mist.messages import MessageLine


class MessageSource(Protocol):
    """A source of messages."""

    address: str
    """Its address, to which senders can send."""
    refused: Counter[str]
    """Number of requests rejected before a message was read, by answer: http_404, http_413, http_503, …"""

    @property
    def pending(self) -> int:
        """Number of received messages that were not read yet."""

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over messages and errors in order, until the source ends."""

    def close(self) -> None:
        """Stop receiving, from any thread; received messages can still be read."""
