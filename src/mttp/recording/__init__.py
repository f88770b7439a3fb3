"""
Sessions, and the handles with which a training loop records.

A handle starts when it is created, and ends at `end()` or when its `with` or `async with` block ends.
Inside the block it is the current one; without a block, pass it explicitly.
Recording never raises into the training loop: a fault is noted on the span, counted in the session, and
logged once. Without a session a handle is inert: it accepts every call, does nothing, and is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.recording.open_agent import OpenAgent
    from mttp.recording.open_call import OpenCall
    from mttp.recording.open_episode import OpenEpisode
    from mttp.recording.open_group import OpenGroup
    from mttp.recording.open_step import OpenStep
    from mttp.recording.propagation import bind_context
    from mttp.recording.remote_episode import RemoteEpisode

__all__ = ["OpenAgent", "OpenCall", "OpenEpisode", "OpenGroup", "OpenStep", "RemoteEpisode", "bind_context"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "OpenAgent": "open_agent",
        "OpenCall": "open_call",
        "OpenEpisode": "open_episode",
        "OpenGroup": "open_group",
        "OpenStep": "open_step",
        "RemoteEpisode": "remote_episode",
        "bind_context": "propagation",
    },
)
