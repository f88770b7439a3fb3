"""The bound on a conversion of values that hold themselves, or that hold others more than once."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CONTAINER_BYTES", "CYCLE", "ITEM_BYTES", "MAX_COPIED_BYTES", "SHORT", "TOO_LARGE", "Sharing"]

MAX_COPIED_BYTES: Final = 1 << 24
"""The maximum size, in bytes, of what one call copies more than once, or takes from iterators."""
CONTAINER_BYTES: Final = 256
"""The size of a list or a mapping without its items."""
ITEM_BYTES: Final = 8
"""The size of an item, or of a number."""
SHORT: Final = 64
"""Texts of at most this many characters are not counted."""
CYCLE: Final = "<cycle>"
TOO_LARGE: Final = "<too large>"


class Sharing:
    """What one conversion has copied, what is around the current value, and what may still be copied."""

    __slots__ = ("_around", "_left", "_seen")

    def __init__(self) -> None:
        self._around: set[int] = set()
        self._seen: dict[int, Any] = {}
        self._left = MAX_COPIED_BYTES

    def enter(self, container: Any, nbytes: int) -> str | None:
        """Enter a container until `leave`; without entering it, return `CYCLE` or `TOO_LARGE`."""
        key = id(container)
        if key in self._around:
            return CYCLE
        if key in self._seen and not self.take(CONTAINER_BYTES + nbytes):
            return TOO_LARGE
        self._seen[key] = container  # also keeps it alive, so that no other object gets its id
        self._around.add(key)
        return None

    def leave(self, container: Any) -> None:
        """Leave the container that was entered last."""
        self._around.discard(id(container))

    def admits(self, leaf: Any, nbytes: int) -> bool:
        """Return whether a leaf can be copied: each at least once."""
        key = id(leaf)
        if key in self._seen:
            return self.take(nbytes)
        self._seen[key] = leaf
        return True

    def take(self, nbytes: int) -> bool:
        """Return whether so many bytes more can be copied, and count them."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True
