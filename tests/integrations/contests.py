"""Scripted environments of PettingZoo, parallel and with turns."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

__all__ = ["Auction", "Race"]


class Race(ParallelEnv):  # type: ignore[misc]  # untyped
    """Two agents move at once; the hare is truncated after two rounds, the tortoise ends after three."""

    metadata: ClassVar = {"name": "race_v3", "render_modes": []}
    possible_agents: ClassVar = ["hare", "tortoise"]
    render_mode = None

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.round = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([self.round, index]) for index, agent in enumerate(self.agents)}

    def step(self, actions: dict[str, Any]) -> Any:
        if actions.get("hare") == 9:
            raise ValueError("the hare sleeps")
        self.round += 1
        agents = self.agents
        rewards = {agent: 0.5 * self.round + int(actions[agent]) for agent in agents}
        terminations = dict.fromkeys(agents, self.round == 3)
        truncations = {agent: self.round == 2 and agent == "hare" for agent in agents}
        infos = {agent: {"reward_speed": rewards[agent]} for agent in agents}
        seen = self._seen()
        self.agents = [agent for agent in agents if not (terminations[agent] or truncations[agent])]
        return seen, rewards, terminations, truncations, infos

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 10, (2,), np.int64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(10)


class Auction(AECEnv):  # type: ignore[misc]  # untyped
    """Agents bid in turn, `rounds` times; each bid pays its bidder and costs the other."""

    metadata: ClassVar = {"name": "auction_v1", "render_modes": [], "is_parallelizable": True}
    possible_agents: ClassVar = ["ann", "bob"]
    render_mode = None

    def __init__(self, rounds: int = 2) -> None:
        super().__init__()
        self.rounds = rounds

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.turn = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> Any:
        return {"turn": np.array([self.turn]), "mask": np.ones(3, np.int8)}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if action == 9:
            raise ValueError("a bid without cover")
        self._cumulative_rewards[agent] = 0.0
        other = self.agents[1 - self.agents.index(agent)]
        self.rewards = {agent: float(action), other: -0.5 * float(action)}
        self._accumulate_rewards()
        self.turn += 1
        if self.turn == self.rounds * 2:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other

    def observation_space(self, agent: str) -> Any:
        return spaces.Dict({"turn": spaces.Box(0, 10, (1,), np.int64), "mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(10)
