"""Recording a parallel environment, in which all agents act at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mttp.integrations.faults import fault
from mttp.integrations.gymnasium.agent_episodes import AgentEpisodes
from mttp.integrations.gymnasium.randomness import GeneratorSource
from mttp.integrations.nesting import EVERYTHING
from mttp.integrations.options import Options
from mttp.integrations.pettingzoo import facts

__all__ = ["RecordedParallelEnv"]


class RecordedParallelEnv:
    """Records a parallel environment; the steps of one call share an index."""

    key: Any = EVERYTHING
    buffered_steps = None

    def __init__(self, env: Any, options: Options) -> None:
        self._env = env
        self._source = GeneratorSource(env.unwrapped)
        self._episodes = AgentEpisodes(options, partial(facts.of_env, env))
        self._reset_at = 0
        self._index = 0
        self._is_resetting = False

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._episodes.use(options)

    def before_reset(self, seed: Any, _: Any = None, *, at: int) -> None:
        """Prepare for a reset."""
        self._reset_at, self._is_resetting = at, True
        self._source.before(seed)

    def after_reset(self, result: Any, *, at: int) -> None:
        """Take the result of a reset."""
        observations, _ = result
        self._is_resetting, self._index = False, 0
        self._episodes.abort("reset", self._reset_at)
        self._episodes.begin(reset_at=self._reset_at, observed_at=at, **self._source.after())
        self._observe(observations, at)

    def _observe(self, observations: Mapping[Any, Any], at: int) -> None:
        for agent, observation in observations.items():
            self._episodes.observe(agent, observation, at=at)

    def before_step(self, actions: Mapping[Any, Any], *, at: int) -> None:  # noqa: ARG002 - of the protocol
        """Start a step of each agent that acts."""
        if actions and self._episodes.has_ended:
            name = type(self._env.unwrapped).__name__
            fault("step_after_end", f"{name} was stepped after the end of its episode")
        for agent, action in actions.items():
            self._episodes.start_step(agent, action, index=self._index)

    def after_step(self, result: Any, *, at: int) -> None:
        """Take the result of a step; an agent that gets a reward without having acted has a step, too."""
        if self._episodes.is_idle:
            return
        observations, rewards, terminations, truncations, infos = result
        for agent in [agent for agent, reward in rewards.items() if reward]:
            if agent not in self._episodes.acting:
                self._episodes.start_step(agent, None, index=self._index)
        for agent in self._episodes.acting:
            flags = terminations.get(agent, False), truncations.get(agent, False)
            self._episodes.finish_step(agent, rewards.get(agent), *flags, infos.get(agent), at=at)
        self._index += 1
        self._episodes.ready(at=at)
        self._observe(observations, at)
        if not [
            agent for agent in self._env.agents if not (terminations.get(agent) or truncations.get(agent))
        ]:
            self._episodes.end(at=at)

    def on_error(self, error: BaseException) -> None:
        """End the open steps and the episode in error; a failed reset aborts the open episode."""
        if self._is_resetting:
            self._episodes.abort("reset", self._reset_at)
        else:
            self._episodes.fail(error)

    def abort(self, reason: str, *, at: int) -> None:
        """Abort the open episode."""
        self._episodes.abort(reason, at)
