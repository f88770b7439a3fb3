"""Recording a turn-based (AEC) environment, in which one agent acts at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mttp.integrations.faults import fault
from mttp.integrations.gymnasium.agent_episodes import AgentEpisodes
from mttp.integrations.gymnasium.randomness import GeneratorSource
from mttp.integrations.gymnasium.recorder import EnvRecorder
from mttp.integrations.nesting import EVERYTHING
from mttp.integrations.options import Options
from mttp.integrations.pettingzoo import facts

__all__ = ["RecordedTurns", "TurnsRecorder"]

_T = TypeVar("_T")


class RecordedTurns:
    """
    Records a turn-based environment.

    An agent's step ends when it is the agent's turn again: then `last` returns its reward.
    An observation is recorded if the policy asked for it, by `last` or `observe`.
    """

    key: Any = EVERYTHING
    buffered_steps = None

    def __init__(self, env: Any, options: Options) -> None:
        self._env = env
        self._source = GeneratorSource(env.unwrapped)
        self._episodes = AgentEpisodes(options, partial(facts.of_env, env))
        self._reset_at = 0
        self._is_resetting = False

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._episodes.use(options)

    def before_reset(self, seed: Any, _: Any = None, *, at: int) -> None:
        """End the open episode, whose rewards the reset deletes, and prepare for a reset."""
        self.abort("reset", at=at)
        self._reset_at, self._is_resetting = at, True
        self._source.before(seed)

    def after_reset(self, _: Any, *, at: int) -> None:
        """Prepare an episode."""
        self._is_resetting = False
        self._episodes.begin(reset_at=self._reset_at, observed_at=at, **self._source.after())

    def observed(self, agent: Any, observation: Any, *, at: int) -> None:
        """Take an observation that the policy asked for."""
        self._episodes.observe(agent, observation, at=at)

    def before_step(self, action: Any, *, at: int) -> None:  # noqa: ARG002 - of the protocol
        """Start the step of the selected agent, unless its part has ended."""
        if self._episodes.has_ended:
            name = type(self._env.unwrapped).__name__
            fault("step_after_end", f"{name} was stepped after the end of its episode")
        if self._episodes.is_idle:
            return
        agent = self._env.agent_selection
        if not (self._env.terminations[agent] or self._env.truncations[agent]):
            self._episodes.start_step(agent, action)

    def after_step(self, _: Any, *, at: int) -> None:
        """End the step of the agent whose turn it is, and the episode after the last agent."""
        self._episodes.ready(at=at)
        if not self._env.agents:
            self._episodes.end(at=at)
        elif self._env.agent_selection in self._episodes.acting:
            _, reward, terminated, truncated, info = self._env.last(observe=False)
            agent = self._env.agent_selection
            self._episodes.finish_step(agent, reward, terminated, truncated, info, at=at)

    def on_error(self, error: BaseException) -> None:
        """End the open steps and the episode in error."""
        if self._is_resetting:
            self._is_resetting = False
            self._episodes.forget()
        else:
            self._episodes.fail(error)

    def abort(self, reason: str, *, at: int) -> None:
        """End the open episode: as finished if each agent's part has ended, else as aborted."""
        if self._episodes.is_idle:
            return
        env = self._env
        for agent in self._episodes.acting:
            flags = env.terminations.get(agent), env.truncations.get(agent)
            reward = env._cumulative_rewards.get(agent)
            self._episodes.finish_step(agent, reward, *flags, env.infos.get(agent), at=at)
        if all(env.terminations[agent] or env.truncations[agent] for agent in env.agents):
            self._episodes.end(at=at)
        else:
            self._episodes.abort(reason, at)


class TurnsRecorder(EnvRecorder):
    """The wrappers around a turn-based environment's `reset`, `step`, `observe` and `close`."""

    def __init__(self, env: RecordedTurns, owner: Any) -> None:
        super().__init__(env, owner, "pettingzoo")
        self._turns = env

    def observe(
        self, wrapped: Callable[..., _T], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _T:
        """Wrap `observe`."""
        if self._is_silent():
            return wrapped(*args, **kwargs)
        observation = self._call(wrapped, args, kwargs)
        agent = args[0] if args else next(iter(kwargs.values()), None)
        self._guard(self._turns.observed, agent, observation, at=self._clock.now())
        return observation
