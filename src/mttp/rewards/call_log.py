"""Calls of models that a component makes while it grades, logged by the integrations that see them."""

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
    """A call that may still go on when the component returns."""

    def log(self) -> None:
        """Add the call to the log's calls, as it is by now, unless it was added."""


class CallLog:
    """A block in which a component is called; afterwards `calls` are those that were made in it."""

    __slots__ = ("_token", "begun", "calls", "context")

    def __enter__(self) -> Self:
        self.calls: list[Call] = []
        self.begun: list[Loggable] = []
        """The same calls, from their start on."""
        self.context = _context()
        """What was current around the component; None where nobody told how to find out."""
        self._token: Token[CallLog | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # a coroutine that is dropped is closed in another context
            _current.reset(self._token)
        for call in self.begun:
            call.log()


def _unknown() -> None:
    """Stands for what is current until somebody tells how to find out."""


_context: Callable[[], Mapping[str, Any] | None] = _unknown
_current: ContextVar[CallLog | None] = ContextVar("mttp-call-log", default=None)


def context_with(current: Callable[[], Mapping[str, Any]]) -> None:
    """Have logs keep what is current around their components from here on, as this function tells it."""
    global _context
    _context = current


def current_log() -> CallLog | None:
    """The log of the component that is being called here; None where none is."""
    return _current.get()
