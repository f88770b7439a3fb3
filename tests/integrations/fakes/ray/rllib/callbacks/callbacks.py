"""RLlib's callback."""

from __future__ import annotations

from typing import Any

__all__ = ["RLlibCallback"]


class RLlibCallback:
    """Does nothing at each event."""

    def _nothing(self, **_: Any) -> None:
        """Do nothing."""

    on_algorithm_init = on_train_result = on_env_runners_recreated = on_environment_created = _nothing
    on_episode_created = on_episode_start = on_episode_step = on_episode_end = on_sample_end = _nothing
