"""The recorded episodes of one environment with several agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mttp.codec.plain import Faults
from mttp.codec.structures import Flattened
from mttp.integrations.gymnasium import infos, spaces
from mttp.integrations.gymnasium.env_episodes import EpisodeOpener, OpenEnvEpisode, note_faults
from mttp.integrations.options import Options
from mttp.recording import configuration
from mttp.recording.open_step import OpenStep

__all__ = ["AgentEpisodes"]


class AgentEpisodes:
    """
    Records the episodes of one environment with several agents.

    An episode starts with the first step after a reset.
    Call `begin` after a reset, `observe` for each observation of an agent, `start_step` and `finish_step`
    around each of its steps, and `end` or `abort`.
    `identity` returns the environment's facts and is called once.
    """

    def __init__(self, options: Options, identity: Callable[[Faults], dict[str, Any]]) -> None:
        self._options = options
        self._opener = EpisodeOpener(identity)
        self._start_facts: dict[str, Any] | None = None
        self._open: OpenEnvEpisode | None = None
        self._observations: dict[Any, tuple[Any, Faults, int, Any]] = {}
        """Each agent's latest observation as copied, its faults, when it was available, and the original."""
        self._steps: dict[Any, OpenStep] = {}
        """The open step of each agent that has acted."""
        self._flags: dict[Any, tuple[bool, bool]] = {}
        """For each agent that has ended: terminated and truncated."""
        self._ready_at = 0
        """When the environment last returned: the start of a step without an observation."""
        self.has_ended = False
        """Whether an episode has ended, and the environment was not reset since."""

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options

    @property
    def acting(self) -> list[Any]:
        """The agents with an open step."""
        return list(self._steps)

    @property
    def is_idle(self) -> bool:
        """Whether there is neither an open nor a prepared episode."""
        return self._open is None and self._start_facts is None

    def begin(self, *, reset_at: int, observed_at: int, **facts: Any) -> None:
        """Prepare an episode after a reset; `facts` are arguments for it."""
        self.forget()
        self.has_ended = False
        if configuration.may_record():
            self._start_facts = {"start_time": reset_at, **facts}
            self._ready_at = observed_at

    def observe(self, agent: Any, observation: Any, *, at: int) -> None:
        """Set the observation that an agent acts on next."""
        if self.is_idle:
            return
        faults: Faults = []
        options = self._options
        copy = spaces.keep(observation, faults, max_bytes=options.max_bytes) if options.observations else None
        self._observations[agent] = copy, faults, at, observation

    def ready(self, *, at: int) -> None:
        """Set the time at which the environment returned."""
        self._ready_at = at

    def start_step(
        self,
        agent: Any,
        action: Any,
        *,
        index: int | None = None,
        policy: object = None,
        version: object = None,
    ) -> OpenStep | None:
        """Start an agent's step, and with the first step the episode; returns None if there is none."""
        if self._start_facts is not None:
            self._open = self._opener.open(self._options, self._start_facts)
            self._start_facts = None
        if self._open is None:
            return None
        if not self._open.is_recording():
            self.forget()
            return None
        observation, faults, at, _ = self._observations.pop(agent, (None, [], self._ready_at, None))
        limit = self._options.max_bytes
        handle = self._open.episode.agent(agent, policy=policy, policy_version=version, start_time=at)
        step = self._steps[agent] = handle.step(start_time=at, index=index)
        if observation is not None:
            step.observation(observation, max_bytes=limit)
        if action is not None and self._options.actions:
            step.action(action, max_bytes=limit)
        note_faults(step, faults)
        return step

    def finish_step(
        self, agent: Any, reward: Any, terminated: Any, truncated: Any, info: Any, *, at: int
    ) -> None:
        """End an agent's step, and the agent's part if a flag is true."""
        step = self._steps.pop(agent, None)
        if step is None or self._open is None:
            return
        faults: Faults = []
        terminated, truncated = infos.flags(terminated, truncated, faults)
        note_faults(step, faults)
        infos.reward(step, reward, info, at=at)
        step.end(terminated=terminated, truncated=truncated, end_time=at)
        if terminated or truncated:
            self.end_agent(agent, terminated, truncated, at=at)

    def end_agent(self, agent: Any, terminated: Any, truncated: Any, *, at: int) -> None:
        """End the part of an agent that has acted."""
        if self._open is not None and agent not in self._flags:
            flags = self._flags[agent] = infos.flags(terminated, truncated, [])
            self._open.episode.agent(agent).end(terminated=flags[0], truncated=flags[1], end_time=at)

    def end(self, *, at: int) -> None:
        """End the episode: terminated if that holds for each agent, truncated if for any."""
        opened, flags = self._open, list(self._flags.values())
        terminated = all(flag for flag, _ in flags) if flags else None
        truncated = any(flag for _, flag in flags) if flags else None
        final = self._final_observation()
        self.forget()
        self.has_ended = True
        if opened is not None and opened.is_recording():
            self._observe_finally(opened, final)
            opened.episode.end(terminated=terminated, truncated=truncated, end_time=at)

    def abort(self, reason: str, at: int) -> None:
        """End the open episode, if there is one, with the status "aborted"."""
        opened, final = self._open, self._final_observation()
        self.forget()
        if opened is not None and opened.is_recording():
            self._observe_finally(opened, final)
            opened.episode.end(status="aborted", stop_reason=reason, end_time=at)

    def _final_observation(self) -> dict[str, Any]:
        """Return the latest observation of each agent that did not act on it."""
        latest = self._observations.items()
        return {
            str(agent): original if isinstance(copy, Flattened) else copy
            for agent, (copy, _, _, original) in latest
            if copy is not None
        }

    def _observe_finally(self, opened: OpenEnvEpisode, observation: Mapping[str, Any]) -> None:
        if observation:
            opened.episode.final_observation(observation, max_bytes=self._options.max_bytes)

    def fail(self, error: BaseException) -> None:
        """End the open steps and the episode with an exception of the environment."""
        steps, opened = list(self._steps.values()), self._open
        self.forget()
        for step in steps:
            step.__exit__(type(error), error, error.__traceback__)
        if opened is not None:
            opened.episode.__exit__(type(error), error, error.__traceback__)

    def forget(self) -> None:
        """Record nothing until the next reset."""
        self._start_facts = self._open = None
        self._observations, self._steps, self._flags = {}, {}, {}
