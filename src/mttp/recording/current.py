"""The current episode, agent and step: those in whose `with` block the code runs."""

from __future__ import annotations

from typing import Any, cast

from mttp.model.interrupts import raise_interrupt
from mttp.recording.handle import STEP_KEY, TRAJECTORY_KEY, current, settled
from mttp.recording.open_episode import OpenEpisode, inert
from mttp.recording.open_step import OpenStep
from mttp.recording.trajectory import Trajectory

__all__ = ["current_episode", "current_step", "current_trajectory", "inert_episode", "inert_step"]

_INERT_STEP = OpenStep(inert(), None, None)


def inert_episode() -> OpenEpisode:
    """Return the inert episode, which records nothing."""
    return inert()


def inert_step() -> OpenStep:
    """Return the inert step, which records nothing."""
    return _INERT_STEP


def current_trajectory() -> Trajectory:
    """Return the current agent, or the current episode; outside an episode an inert one."""
    trajectory: object = settled(current()).get(TRAJECTORY_KEY)
    while isinstance(trajectory, Trajectory) and trajectory.ended:
        trajectory = trajectory._outer_current
    return trajectory if isinstance(trajectory, Trajectory) and not _is_left_open(trajectory) else inert()


def current_episode() -> OpenEpisode:
    """Return the current episode; outside an episode an inert one, which is false."""
    try:
        return cast(OpenEpisode, current_trajectory()._episode)
    except Exception as error:  # for lack of memory or stack
        raise_interrupt(error)
        return inert()


def current_step() -> OpenStep:
    """Return the current step; outside a step an inert one, which is false."""
    try:
        step = _unwrapped(settled(current()).get(STEP_KEY))
        while isinstance(step, OpenStep) and step.ended:
            step = _unwrapped(step._outer)
        return step if isinstance(step, OpenStep) and not _is_left_open(step._owner) else _INERT_STEP
    except Exception as error:  # for lack of memory or stack
        raise_interrupt(error)
        return _INERT_STEP


def _is_left_open(trajectory: Any) -> bool:
    """Return whether its session has closed before it ended, for example after Ctrl-C."""
    return bool(trajectory) and trajectory._segment.host.closed


def _unwrapped(handle: object) -> object:
    """Return the handle of a step that is opened when it is called for; any other object unchanged."""
    return handle() if callable(handle) else handle
