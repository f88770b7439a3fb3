"""Logs of the model calls that a component makes, filled by integrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import Self

if TYPE_CHECKING:
    from mttp.model.episodes import Call

__all__ = ["CallLog", "Loggable", "context_with", "current_log"]


class Loggable(Protocol):
    """A call that may still run when the component returns."""

    def log(self) -> None:
        """Add the call in its present state to the log's calls, unless it was added."""


class CallLog:
    """A context manager around a component's call; on exit `calls` has the model calls made in it."""

    __slots__ = ("_token", "begun", "calls", "context")

    def __enter__(self) -> Self:
        self.calls: list[Call] = []
        self.begun: list[Loggable] = []
        """The calls that have started, finished or not."""
        self.context = _context()
        """The recording context around the component; None without `context_with`."""
        self._token: Token[CallLog | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # an abandoned coroutine is closed in another context
            _current.reset(self._token)
        for call in self.begun:
            call.log()


def _unknown() -> None:
    """Return no context, until `context_with` sets a function."""


_context: Callable[[], Mapping[str, Any] | None] = _unknown
_current: ContextVar[CallLog | None] = ContextVar("mttp-call-log", default=None)


def context_with(current: Callable[[], Mapping[str, Any]]) -> None:
    """Set the function that returns the recording context around a component."""
    global _context
    _context = current


def current_log() -> CallLog | None:
    """Return the log of the component that runs in this context, or None."""
    return _current.get()
