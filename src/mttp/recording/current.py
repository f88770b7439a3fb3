"""The episode, the agent and the step that are current: those whose block this code runs in."""

from __future__ import annotations

from typing import Any, cast

from opentelemetry import context as otel_context

from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY
from mttp.recording.lazy_step import LazyStep
from mttp.recording.open_episode import OpenEpisode, inert
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory

__all__ = ["current_episode", "current_step", "current_trajectory", "inert_episode", "inert_step"]

_INERT_STEP = OpenStep(inert(), None, None)


def inert_episode() -> OpenEpisode:
    """An episode that records nothing."""
    return inert()


def inert_step() -> OpenStep:
    """A step that records nothing."""
    return _INERT_STEP


def current_trajectory() -> Trajectory:
    """The episode, or the agent of one, whose steps come next here; an inert episode elsewhere."""
    found = otel_context.get_value(TRAJECTORY_KEY)
    while isinstance(found, Trajectory) and found.ended:
        found = found._behind
    return found if isinstance(found, Trajectory) and not _is_left_open(found) else inert()


def current_episode() -> OpenEpisode:
    """The episode whose block, or whose step's or agent's, this runs in; an inert, false one elsewhere."""
    try:
        return cast(OpenEpisode, current_trajectory()._episode)
    except Exception:  # for want of memory, or of stack: there is nothing to lose
        return inert()


def current_step() -> OpenStep:
    """The step whose block this code runs in; an inert, false one where there is none."""
    try:
        found = _opened(otel_context.get_value(STEP_KEY))
        while isinstance(found, OpenStep) and found.ended:
            found = _opened(found._outer)
        return found if isinstance(found, OpenStep) and not _is_left_open(found._owner) else _INERT_STEP
    except Exception:  # for lack of memory or stack
        return _INERT_STEP


def _is_left_open(trajectory: Any) -> bool:
    """Whether its session has closed without its end, as where Ctrl-C left its block."""
    return bool(trajectory) and trajectory._segment.host.closed


def _opened(found: object) -> object:
    """The handle of a lazy step, opened."""
    return found.open() if isinstance(found, LazyStep) else found
