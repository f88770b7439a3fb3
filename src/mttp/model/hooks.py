"""Who looks on while samples are scored: the recorder, once there is one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mttp.model.results import RewardResult

__all__ = ["ScoringObserver", "ScoringObserverFactory", "begin", "watch_with"]


class ScoringObserver(Protocol):
    """One scoring as it is watched; it never raises."""

    def grading(self, name: str) -> AbstractContextManager[object]:
        """A component is called within this block."""

    def scored(self, result: RewardResult) -> str:
        """The result; the id of the span that was recorded of it, empty where none was."""


class ScoringObserverFactory(Protocol):
    """Returns an observer for each scoring."""

    def __call__(self, spec: str, *, of_step: bool) -> ScoringObserver | None:
        """Called when a scoring by the spec of that name begins; returns None to skip it."""


_watcher: ScoringObserverFactory | None = None


def watch_with(watcher: ScoringObserverFactory) -> None:
    """Have scorings of this process watched from here on."""
    global _watcher
    _watcher = watcher


def begin(spec: str, *, of_step: bool) -> ScoringObserver | None:
    """Say that a scoring begins; who sees it, if anybody does."""
    return None if _watcher is None else _watcher(spec, of_step=of_step)
