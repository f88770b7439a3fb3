"""Conversions between the kinds of environments."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils.env import ParallelEnv

__all__ = ["aec_to_parallel_wrapper"]


class aec_to_parallel_wrapper(ParallelEnv):  # noqa: N801 - the library's name
    """Steps an environment of turns once for each agent."""

    def __init__(self, aec_env: Any) -> None:
        self.aec_env = aec_env
        self.metadata, self.possible_agents = aec_env.metadata, aec_env.possible_agents

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return self.aec_env.unwrapped

    def observation_space(self, agent: str) -> Any:
        """Return an agent's observation space."""
        return self.aec_env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """Return an agent's action space."""
        return self.aec_env.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment."""
        self.aec_env.reset(seed=seed, options=options)
        self.agents = self.aec_env.agents[:]
        return {agent: self.aec_env.observe(agent) for agent in self.agents}, dict(self.aec_env.infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step each agent."""
        env = self.aec_env
        rewards = dict.fromkeys(env.agents, 0.0)
        for _ in self.agents:
            env.last()
            env.step(actions[env.agent_selection])
            for agent in env.agents:
                rewards[agent] += env.rewards[agent]
        parts = dict(env.terminations), dict(env.truncations), dict(env.infos)
        seen = {agent: env.observe(agent) for agent in env.agents}
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        self.agents = env.agents
        return seen, rewards, *parts
