"""Environments, as PettingZoo defines them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["AECEnv", "ParallelEnv"]


class ParallelEnv:
    """An environment whose agents act at once."""

    metadata: dict[str, Any]
    agents: list[str]
    possible_agents: list[str]

    def close(self) -> None:
        """Do nothing."""

    @property
    def unwrapped(self) -> ParallelEnv:
        """The environment."""
        return self


class AECEnv:
    """An environment whose agents take turns."""

    metadata: dict[str, Any]
    agents: list[str]
    possible_agents: list[str]
    agent_selection: str
    _skip_agent_selection: str | None = None

    def observe(self, agent: str) -> Any:
        """Return an agent's observation."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""

    @property
    def unwrapped(self) -> AECEnv:
        """The environment."""
        return self

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return what the selected agent sees, and its reward since its last step."""
        agent = self.agent_selection
        seen = self.observe(agent) if observe else None
        ends = self.terminations[agent], self.truncations[agent]
        return seen, self._cumulative_rewards[agent], *ends, self.infos[agent]

    def agent_iter(self) -> Iterator[str]:
        """Iterate over the selected agents."""
        while self.agents:
            yield self.agent_selection

    def _accumulate_rewards(self) -> None:
        for agent, reward in self.rewards.items():
            self._cumulative_rewards[agent] += reward

    def _was_dead_step(self, action: Any) -> None:
        assert action is None, "when an agent is dead, the only valid action is None"

        agent = self.agent_selection
        for part in (self.terminations, self.truncations, self.rewards, self._cumulative_rewards, self.infos):
            del part[agent]
        self.agents.remove(agent)
        if self.agents:
            self.agent_selection = self.agents[0]
