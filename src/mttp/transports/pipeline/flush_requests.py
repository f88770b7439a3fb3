"""Requests to export at once, and their results."""

from __future__ import annotations

__all__ = ["FlushRequests"]


class FlushRequests:
    """
    Numbers requests, and keeps the last one that was answered and the last one that succeeded.

    The lock of the pipeline guards it.
    """

    def __init__(self) -> None:
        self.last = 0
        """Number of the latest request."""
        self._answered = self._granted = 0
        self._lost_before = 0
        """Lost spans at the last answer."""

    @property
    def is_pending(self) -> bool:
        """Whether a request waits for its answer."""
        return self.last > self._answered

    def add(self) -> int:
        """Add a request, and return its number."""
        self.last += 1
        return self.last

    def is_answered(self, number: int) -> bool:
        """Whether the request was answered."""
        return self._answered >= number

    def is_granted(self, number: int) -> bool:
        """Whether all spans that had ended by the request were delivered."""
        return self._granted >= number

    def answer(self, number: int, *, written: bool, lost: int) -> None:
        """Answer the requests up to `number`; `lost` is the number of all lost spans."""
        if number <= self._answered:
            return
        if written and lost == self._lost_before:
            self._granted = number
        self._answered, self._lost_before = number, lost
