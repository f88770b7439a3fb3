"""The wrappers of PettingZoo."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils.env import AECEnv, ParallelEnv

__all__ = ["BaseParallelWrapper", "BaseWrapper", "OrderEnforcingWrapper"]


class BaseWrapper(AECEnv):
    """Passes everything to an environment of turns."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "_cumulative_rewards":
            raise AttributeError(f"accessing private attribute '{name}' is prohibited")
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Reset the environment."""
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        """Step the environment."""
        self.env.step(action)

    def observe(self, agent: str) -> Any:
        """Return an agent's observation."""
        return self.env.observe(agent)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def observation_space(self, agent: str) -> Any:
        """Return an agent's observation space."""
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """Return an agent's action space."""
        return self.env.action_space(agent)


class OrderEnforcingWrapper(BaseWrapper):
    """The outermost wrapper of the library's own environments."""


class BaseParallelWrapper(ParallelEnv):
    """Passes everything to a parallel environment."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"accessing private attribute '{name}' is prohibited")
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment."""
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Step the environment."""
        return self.env.step(actions)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def observation_space(self, agent: str) -> Any:
        """Return an agent's observation space."""
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """Return an agent's action space."""
        return self.env.action_space(agent)
