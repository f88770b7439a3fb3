"""
The protocol of an integration.

An integration is a module or package for one library, and a row in `integrations.LIBRARIES`.
It patches the library with `patching`, counts errors in its hooks with `faults`, and uses `nesting` so that
only one recorder records a call.

An integration gets no session, because its targets outlive sessions: an environment keeps working after a
session is closed, and a fork, a test or a second run has its own session. Each episode belongs to the session
that is open when it starts (`configuration.recording_session()` opens one if needed).
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from typing_extensions import Self

__all__ = ["Attach", "AttachAll", "Detach", "Integration", "Wrap"]


class Detach(Protocol):
    """The handle that instrumenting returns; `detach`, or leaving its `with` block, removes the patches."""

    def detach(self) -> None:
        """Remove all patches; a second call does nothing."""

    def status(self) -> dict[str, bool]:
        """Return each patch by name, and whether calls still pass through it."""

    def __enter__(self) -> Self:
        """Return the handle."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach, unless another `instrument` call holds the same handle."""


class Attach(Protocol):
    """Instrument one object in place, keeping its identity and class."""

    def __call__(self, target: Any, /, **options: Any) -> Detach:
        """Record `target` from now on; raises InstrumentError if it cannot be recorded."""


class Wrap(Protocol):
    """Wrap one object in a recording wrapper of the library's own type."""

    def __call__(self, target: Any, /, **options: Any) -> Any:
        """Return the wrapper; raises InstrumentError if the target cannot be wrapped."""


class AttachAll(Protocol):
    """Instrument every object that the library creates from now on."""

    def __call__(self, **options: Any) -> Detach:
        """Return the handle; further calls return the same one."""


class Integration(Protocol):
    """A module that integrates one library; `wrap` is optional."""

    attach: Attach
    attach_all: AttachAll
