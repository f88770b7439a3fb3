"""
Open episodes, steps and calls: what a training loop talks to.

A handle starts when it is made and ends by `end()` or by leaving its `with` or `async with` block.
Inside the block it is the current one; without a block it is passed by hand.
Nothing here raises into the loop: a fault is noted on the span, counted in the session, and logged once.
A handle that has nothing to record into is inert: it takes every call, does nothing, and is false.
"""

from __future__ import annotations

from opentelemetry import context as otel_context

from mttp.recorder.handle import EPISODE_KEY, STEP_KEY, Host
from mttp.recorder.open_call import OpenCall
from mttp.recorder.open_episode import OpenEpisode
from mttp.recorder.open_step import OpenStep

__all__ = [
    "Host",
    "OpenCall",
    "OpenEpisode",
    "OpenStep",
    "current_episode",
    "current_step",
    "inert_episode",
    "inert_step",
]

_INERT_EPISODE = OpenEpisode(None)
_INERT_STEP = OpenStep(_INERT_EPISODE, None)


def inert_episode() -> OpenEpisode:
    """An episode that records nothing."""
    return _INERT_EPISODE


def inert_step() -> OpenStep:
    """A step that records nothing."""
    return _INERT_STEP


def current_episode() -> OpenEpisode:
    """The episode whose block, or whose step's block, this code runs in; an inert, false one elsewhere."""
    step = otel_context.get_value(STEP_KEY)
    if isinstance(step, OpenStep) and isinstance(step._owner, OpenEpisode) and not step._owner.ended:
        return step._owner
    found = otel_context.get_value(EPISODE_KEY)
    while isinstance(found, OpenEpisode) and found.ended:
        found = found._outer
    return found if isinstance(found, OpenEpisode) else _INERT_EPISODE


def current_step() -> OpenStep:
    """The step whose block this code runs in; an inert, false one where there is none."""
    found = otel_context.get_value(STEP_KEY)
    while isinstance(found, OpenStep) and found.ended:
        found = found._outer
    return found if isinstance(found, OpenStep) else _INERT_STEP
