"""
Gymnasium environments and vector environments.

An environment is recorded at the instrumented layer of its wrapper stack.
Where several layers of one stack are instrumented, the outermost one records.
"""

from __future__ import annotations

from mttp.errors import MissingExtra

try:
    from gymnasium.vector import AutoresetMode as _AutoresetMode  # noqa: F401 - since 1.1
except ImportError as error:
    raise MissingExtra(
        package="gymnasium>=1.1", extra="gymnasium", purpose="recording Gymnasium environments"
    ) from error

from mttp.integrations.gymnasium.inplace import attach, wrap
from mttp.integrations.gymnasium.library import attach_all
from mttp.integrations.gymnasium.wrappers import RecordEpisodes, RecordVectorEpisodes

__all__ = ["RecordEpisodes", "RecordVectorEpisodes", "attach", "attach_all", "wrap"]
