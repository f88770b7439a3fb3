"""The hook through which the recorder observes scorings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mttp.model.results import RewardResult

__all__ = ["ScoringObserver", "ScoringObserverFactory", "begin", "watch_with"]


class ScoringObserver(Protocol):
    """The observer of one scoring; its methods never raise."""

    def grading(self, name: str) -> AbstractContextManager[object]:
        """Return a context manager for the call of a component."""

    def scored(self, result: RewardResult) -> str:
        """Record the result and return its span id, 16 hex digits; empty if it is not recorded."""


class ScoringObserverFactory(Protocol):
    """Returns an observer for each scoring."""

    def __call__(self, spec: str, *, of_step: bool) -> ScoringObserver | None:
        """Return an observer for a scoring by the spec of this name; None to skip it."""


_factory: ScoringObserverFactory | None = None


def watch_with(factory: ScoringObserverFactory) -> None:
    """Observe the scorings of this process with the factory's observers."""
    global _factory
    _factory = factory


def begin(spec: str, *, of_step: bool) -> ScoringObserver | None:
    """Return an observer for a scoring that begins; None if it is not observed."""
    return None if _factory is None else _factory(spec, of_step=of_step)
