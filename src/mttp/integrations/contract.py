"""What every integration promises."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from typing_extensions import Self

__all__ = ["Attach", "AttachAll", "Detach", "Integration", "Wrap"]


class Detach(Protocol):
    """What set-up gives back: it undoes it, by `detach` or at the end of its `with` block."""

    def detach(self) -> None:
        """Take everything off again; a second call does nothing."""

    def status(self) -> dict[str, bool]:
        """Each seam by name, and whether it holds: whether calls pass through it."""

    def __enter__(self) -> Self:
        """Go on recording inside the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach, unless the same handle was given to somebody else too."""


class Attach(Protocol):
    """Record what `target` does from here on, and leave its identity and class as they are."""

    def __call__(self, target: Any, /, **options: Any) -> Detach:
        """Raises InstrumentError where the target is nothing that can be recorded."""


class Wrap(Protocol):
    """The target in a wrapper of the library's own kind, which records."""

    def __call__(self, target: Any, /, **options: Any) -> Any:
        """Raises InstrumentError where the target can't be wrapped."""


class AttachAll(Protocol):
    """Record everything that the library makes from here on."""

    def __call__(self, **options: Any) -> Detach:
        """Called again, it gives the same handle back."""


class Integration(Protocol):
    """A module that knows one library."""

    attach: Attach
    wrap: Wrap
    attach_all: AttachAll
