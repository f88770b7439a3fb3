"""Recording wrappers of Gymnasium's own types."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper

from mttp.integrations.gymnasium import workers
from mttp.integrations.gymnasium.env import SingleEnv
from mttp.integrations.gymnasium.recorder import CopiedRecorder, EnvRecorder
from mttp.integrations.gymnasium.vector_env import RecordedVectorEnv
from mttp.integrations.options import Options

__all__ = ["RecordEpisodes", "RecordVectorEpisodes"]


class RecordEpisodes(CopiedRecorder, gymnasium.Wrapper, RecordConstructorArgs):
    """
    Records an environment's episodes; the options are those of `mttp.wrap`.

    A copy records its own episodes, from its next reset on.
    """

    def __init__(self, env: Any, **options: Any) -> None:
        chosen = Options.of(options)
        RecordConstructorArgs.__init__(self, **options)
        gymnasium.Wrapper.__init__(self, env)
        self._recorder = EnvRecorder(SingleEnv(env, chosen), self)

    @property
    def recorder(self) -> EnvRecorder:
        """The recorder of this layer."""
        return self._recorder

    def reset(self, **kwargs: Any) -> Any:
        """Reset the environment."""
        return self._recorder.reset(self.env.reset, self, (), kwargs)

    def step(self, action: Any) -> Any:
        """Step the environment."""
        return self._recorder.step(self.env.step, self, (action,), {})

    def close(self) -> None:
        """Close the environment; an open episode ends as aborted."""
        return self._recorder.close(self.env.close, self, (), {})

    def _new_recorder(self) -> EnvRecorder:
        return EnvRecorder(SingleEnv(self.env, Options.of(self._saved_kwargs)), self)


class RecordVectorEpisodes(CopiedRecorder, VectorWrapper, RecordConstructorArgs):
    """
    Records the episodes of a vector environment's environments; the options are those of `mttp.wrap`.

    A copy records its own episodes, from its next reset on.
    """

    def __init__(self, env: Any, **options: Any) -> None:
        chosen = Options.of(options)
        RecordConstructorArgs.__init__(self, **options)
        VectorWrapper.__init__(self, env)
        self._recorder = EnvRecorder(RecordedVectorEnv(env, chosen), self)
        workers.mute(env, muted=True)

    def reset(self, **kwargs: Any) -> Any:
        """Reset the environments."""
        return self._recorder.reset(self.env.reset, self, (), kwargs)

    def step(self, actions: Any) -> Any:
        """Step the environments."""
        return self._recorder.step(self.env.step, self, (actions,), {})

    def close(self, **kwargs: Any) -> None:
        """Close the environments; open episodes end as aborted."""
        return self._recorder.close(self.env.close, self, (), kwargs)

    def _new_recorder(self) -> EnvRecorder:
        return EnvRecorder(RecordedVectorEnv(self.env, Options.of(self._saved_kwargs)), self)
