"""Which episodes evaluate a policy while it is trained."""

from __future__ import annotations

import sys
from types import FrameType
from weakref import WeakSet

from mttp.recording.session import Session

__all__ = ["mark", "split_of"]

_EVALUATE = "evaluate_policy"
"""
The function of Stable-Baselines3, of its contributions and of other libraries that runs evaluations.

It is looked for among the callers: programs import it by name, before anything can be patched.
"""
_trained: WeakSet[Session] = WeakSet()
"""Sessions with episodes that no evaluation began."""
_marked: str | None = None
"""In a worker process of a vector: the split of the episodes that the parent begins there."""


def split_of(session: Session) -> str | None:
    """Return eval for an episode that is begun by an evaluation, after other episodes; else None."""
    if _marked is not None:
        return _marked
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _EVALUATE:
            return "eval" if session in _trained else None
        frame = frame.f_back
    _trained.add(session)
    return None


def mark(split: str | None) -> None:
    """Set the split of this process's episodes, in which no caller shows an evaluation; None for unknown."""
    global _marked
    _marked = split
