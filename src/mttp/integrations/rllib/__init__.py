"""
RLlib: the episodes of its environment runners, with one agent or several, and the updates of its learners.

Ray's RLlib is imported when one of its objects is recorded, not with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.integrations.rllib.inplace import attach
from mttp.integrations.rllib.library import attach_all
from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.integrations.rllib.callback import EpisodeCallback

__all__ = ["EpisodeCallback", "attach", "attach_all"]

__getattr__, __dir__ = exports(__name__, {"EpisodeCallback": "callback"})
