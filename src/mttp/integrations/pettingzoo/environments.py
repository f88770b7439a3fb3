"""Recording the environments of PettingZoo: parallel ones, and those in which one agent acts at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from mttp.codec.plain import Faults
from mttp.integrations.faults import fault
from mttp.integrations.gymnasium.agent_episodes import AgentEpisodes
from mttp.integrations.gymnasium.facts import facts_found
from mttp.integrations.gymnasium.randomness import GeneratorSource
from mttp.integrations.gymnasium.recorder import EnvRecorder
from mttp.integrations.gymnasium.spaces import describe
from mttp.integrations.nesting import EVERYTHING
from mttp.integrations.options import Options

__all__ = ["RecordedParallelEnv", "RecordedTurns", "TurnsRecorder", "of_env"]


_VERSION = re.compile(r"_v(\d+)$")


def of_env(env: Any, faults: Faults) -> dict[str, Any]:
    """Return the facts of an environment; a fact that raises is left out and added to `faults`."""
    facts: dict[str, Callable[[], Any]] = {
        "env": lambda: _name(env),
        "env_version": lambda: _version(_name(env)),
        "env_wrappers": lambda: [type(layer).__name__ for layer in _layers(env)][:-1],
        "env_spaces": lambda: {
            "observation": _by_agent(env, env.observation_space),
            "action": _by_agent(env, env.action_space),
        },
    }
    return facts_found(facts, faults)


def _name(env: Any) -> str:
    base = env.unwrapped
    return str((getattr(base, "metadata", None) or {}).get("name") or type(base).__name__)


def _version(name: str) -> str | None:
    match = _VERSION.search(name)
    return match[1] if match else None


def _layers(env: Any) -> Iterator[Any]:
    """Iterate over the wrappers and conversions, outermost first, and then the innermost environment."""
    while env is not None:
        yield env
        env = vars(env).get("env") or vars(env).get("aec_env")


def _by_agent(env: Any, space_of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the agents' spaces as one `Dict` space by agent."""
    agents = getattr(env, "possible_agents", None) or env.agents
    return {"type": "Dict", "spaces": {str(agent): describe(space_of(agent)) for agent in agents}}


class _RecordedAgents:
    """The part of both kinds of environments."""

    key: Any = EVERYTHING
    buffered_steps = None

    def __init__(self, env: Any, options: Options) -> None:
        self._env = env
        self._source = GeneratorSource(env.unwrapped)
        self._episodes = AgentEpisodes(options, partial(of_env, env))
        self._reset_at = self._index = 0
        self._is_resetting = False

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._episodes.use(options)

    def before_reset(self, seed: Any, _: Any = None, *, at: int) -> None:
        """Prepare for a reset."""
        self._reset_at, self._is_resetting = at, True
        self._source.before(seed)

    def _check_open(self) -> None:
        """Count a fault for a step after the end."""
        if self._episodes.has_ended:
            name = type(self._env.unwrapped).__name__
            fault("step_after_end", f"{name} was stepped after the end of its episode")


class RecordedParallelEnv(_RecordedAgents):
    """Records a parallel environment; the steps of one call share an index."""

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
        if actions:
            self._check_open()
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
        if all(terminations.get(agent) or truncations.get(agent) for agent in self._env.agents):
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


_T = TypeVar("_T")


class RecordedTurns(_RecordedAgents):
    """
    Records a turn-based environment.

    An agent's step ends when it is the agent's turn again: then `last` returns its reward.
    An observation is recorded if the policy asked for it, by `last` or `observe`.
    """

    def before_reset(self, seed: Any, _: Any = None, *, at: int) -> None:
        """End the open episode, whose rewards the reset deletes, and prepare for a reset."""
        self.abort("reset", at=at)
        super().before_reset(seed, at=at)

    def after_reset(self, _: Any, *, at: int) -> None:
        """Prepare an episode."""
        self._is_resetting = False
        self._episodes.begin(reset_at=self._reset_at, observed_at=at, **self._source.after())

    def observed(self, agent: Any, observation: Any, *, at: int) -> None:
        """Take an observation that the policy asked for."""
        self._episodes.observe(agent, observation, at=at)

    def before_step(self, action: Any, *, at: int) -> None:  # noqa: ARG002 - of the protocol
        """Start the step of the selected agent, unless its part has ended."""
        self._check_open()
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
