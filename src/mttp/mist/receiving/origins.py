"""What the places that messages come from have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from mttp.mist.messages import MessageLine

__all__ = ["MessageSource"]


class MessageSource(Protocol):
    """One place that messages come from."""

    address: str
    """Where it is; what sends there reaches it, where something can."""
    refused: Counter[str]
    """What was turned down before it was a message, by the answer: http_404, http_413, http_503, …"""

    @property
    def pending(self) -> int:
        """Messages that came in and were not taken out yet."""

    def lines(self) -> Iterator[MessageLine]:
        """Messages and errors in their order, until no more come."""

    def close(self) -> None:
        """Take nothing more in, from any thread; what came in before may still be taken out."""
