"""
PettingZoo's parallel and turn-based (AEC) environments: each episode is recorded with its agents.

Where several layers of one stack of wrappers are instrumented, the outermost one records.
"""

from __future__ import annotations

from mttp.errors import MissingExtra

try:
    from pettingzoo import AECEnv as _AECEnv  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        package="pettingzoo>=1.25", extra="pettingzoo", purpose="recording PettingZoo environments"
    ) from error

from mttp.integrations.pettingzoo.inplace import RecordAECEpisodes, RecordParallelEpisodes, attach, wrap
from mttp.integrations.pettingzoo.library import attach_all

__all__ = ["RecordAECEpisodes", "RecordParallelEpisodes", "attach", "attach_all", "wrap"]
