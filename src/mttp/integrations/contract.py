"""
What every integration promises.

An integration is a module (a package where it needs several) that knows one library, and a row in
`integrations.LIBRARIES`. It finds out what to call by `seams`, counts what fails in its hooks by `faults`,
and looks at `covering` for who else records.

What it attaches to outlives sessions, so that none is given: an environment goes on after a session was
closed, and a fork, a test or a second run has a session of its own. Each episode goes to the one that is
open when it starts (`configuration.recording_session()`), which is started without `configure`.
"""

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
        """Detach, unless another `instrument` call holds the same handle."""


class Attach(Protocol):
    """Record what `target` does from here on, and leave its identity and class as they are."""

    def __call__(self, target: Any, /, **options: Any) -> Detach:
        """Raises InstrumentError where the target is nothing that can be recorded."""


class Wrap(Protocol):
    """The target in a wrapper of the library's own kind, which records; for libraries that have such."""

    def __call__(self, target: Any, /, **options: Any) -> Any:
        """Raises InstrumentError where the target can't be wrapped."""


class AttachAll(Protocol):
    """Record everything that the library makes from here on."""

    def __call__(self, **options: Any) -> Detach:
        """Called again, it gives the same handle back."""


class Integration(Protocol):
    """A module that knows one library; it may have `wrap`, too."""

    attach: Attach
    attach_all: AttachAll
