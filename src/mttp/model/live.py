"""Objects that stand for something that is open in this process, and can't be multiplied."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

from typing_extensions import Self

__all__ = ["Live"]


class Live:
    """
    The base of handles: a copy of one, also within a copied state, is the handle itself.

    A handle can't be pickled, because it records in its own process.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} can't be pickled, because it records in this process; "
            "pass the carrier of mttp.inject() to another process, and call mttp.extract(carrier) there"
        )
