"""Recording the episodes of one environment runner of RLlib."""

from __future__ import annotations

from typing import Any, Protocol

from mttp.codec.plain import number
from mttp.integrations.gymnasium.agent_episodes import AgentEpisodes
from mttp.integrations.gymnasium.env_episodes import EnvEpisodes
from mttp.integrations.gymnasium.inplace import silence
from mttp.integrations.options import Options
from mttp.integrations.rllib import facts
from mttp.model.clock import Clock
from mttp.recording import configuration
from mttp.recording.open_step import OpenStep
from mttp.recording.session import Session

__all__ = ["RunnerRecorder"]

_VERSION = "weights_seq_no"


class _EpisodeEvents(Protocol):
    """Records the episodes of one environment from RLlib's episode objects."""

    def start(self, episode: Any, at: int, **known: Any) -> None:
        """Start an episode after a reset."""

    def step(self, episode: Any, at: int) -> None:
        """Record the latest step."""

    def end(self, episode: Any, at: int) -> None:
        """End the episode."""

    def abort(self, reason: str, at: int) -> None:
        """Abort the open episode."""


class RunnerRecorder:
    """
    Records one environment runner, from the calls of its callbacks.

    An episode continues over several calls of `sample`, although RLlib cuts it into chunks.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = Clock()
        self._envs: dict[int, _EpisodeEvents] = {}
        self._session: Session | None = None

    def on_environment_created(self, runner: Any) -> None:
        """Stop other recorders of the environments, which this one records."""
        for env in (runner.env, *getattr(runner.env, "envs", ())):
            silence(env, silent=True)

    def on_episode_created(self, index: int) -> None:
        """Abort an episode that the runner has dropped, as after an error of its environment."""
        if index in self._envs:
            self._envs[index].abort("reset", self._clock.now())

    def on_episode_start(self, runner: Any, episode: Any, index: int) -> None:
        """Start an episode."""
        self._join(configuration.recording_session())
        if index not in self._envs:
            self._envs[index] = self._recorded(runner, index)
        metadata = {
            "rllib_episode": str(episode.id_),
            "worker_index": runner.worker_index,
            "in_evaluation": bool(runner.config.in_evaluation),
        }
        version = getattr(runner, "_weights_seq_no", None)
        known: dict[str, Any] = {"metadata": metadata, "policy_version": version}
        if metadata["in_evaluation"]:
            known["split"] = "eval"
        self._envs[index].start(episode, self._clock.now(), **known)

    def _recorded(self, runner: Any, index: int) -> _EpisodeEvents:
        identity = facts.identity(runner, index)
        if runner.config.is_multi_agent:
            return _SeveralAgents(AgentEpisodes(self._options, identity))
        return _OneAgent(EnvEpisodes(self._options, identity), runner.config)

    def _join(self, session: Session | None) -> None:
        if session is not None and session is not self._session:
            self._session = session
            session._before_close(self.abort, "training_ended")

    def on_episode_step(self, episode: Any, index: int) -> None:
        """Record a step; none of an episode that started before the recording."""
        if index in self._envs:
            self._envs[index].step(episode, self._clock.now())

    def on_episode_end(self, episode: Any, index: int) -> None:
        """End an episode."""
        if index in self._envs:
            self._envs[index].end(episode, self._clock.now())

    def on_sample_end(self, runner: Any) -> None:
        """Write the spans of a runner in a process of its own, which Ray may kill at any time."""
        session = configuration.current_session()
        if session is not None and runner.worker_index:
            session.flush()

    def abort(self, reason: str) -> None:
        """Abort the open episodes."""
        for env in self._envs.values():
            env.abort(reason, self._clock.now())


class _OneAgent:
    """Records the episodes of an environment with one agent."""

    def __init__(self, episodes: EnvEpisodes, config: Any) -> None:
        self._episodes = episodes
        self._config = config
        self.abort = episodes.abort

    def start(self, episode: Any, at: int, **known: Any) -> None:
        """Start an episode."""
        self._episodes.begin(episode.get_observations(-1), reset_at=at, observed_at=at, **known)

    def step(self, episode: Any, at: int) -> None:
        """Record the latest step; the last one ends the episode."""
        self._episodes.start_step(episode.get_actions(-1))
        step = self._episodes.step
        if step is None:
            return
        version = _describe(step, episode)
        self._episodes.end_facts = {
            "discount": number(getattr(self._config, "gamma", None)),
            "policy_version_end": version,
        }
        self._episodes.finish_step(
            episode.get_observations(-1),
            episode.get_rewards(-1),
            episode.is_terminated,
            episode.is_truncated,
            episode.get_infos(-1),
            at=at,
        )

    def end(self, episode: Any, at: int) -> None:
        """Do nothing: the last step has ended the episode."""


class _SeveralAgents:
    """
    Records the episodes of an environment with several agents.

    RLlib adds a step to an agent's episode once the agent can observe its result, and so it is recorded.
    """

    def __init__(self, episodes: AgentEpisodes) -> None:
        self._episodes = episodes
        self._counts: dict[Any, int] = {}
        """The number of recorded steps of each agent."""
        self.abort = episodes.abort

    def start(self, episode: Any, at: int, **known: Any) -> None:
        """Start an episode."""
        self._counts = {}
        known.pop("policy_version")  # of an agent
        self._episodes.begin(reset_at=at, observed_at=at, **known)
        self.step(episode, at)

    def step(self, episode: Any, at: int) -> None:
        """Record the steps that agents have completed, and what they observe."""
        self._episodes.ready(at=at)
        for agent, sa_episode in episode.agent_episodes.items():
            known = self._counts.get(agent)
            if known is not None and sa_episode.t > known:
                self._finish(episode, agent, sa_episode, at)
            if known is None or sa_episode.t > known:
                self._counts[agent] = sa_episode.t
                self._episodes.observe(agent, sa_episode.get_observations(-1), at=at)

    def _finish(self, episode: Any, agent: Any, sa_episode: Any, at: int) -> None:
        action = sa_episode.get_actions(-1)
        version = _extra(sa_episode, _VERSION)
        step = self._episodes.start_step(
            agent, action, policy=episode.module_for(agent), version=None if version is None else int(version)
        )
        if step is not None:
            _describe(step, sa_episode)
        flags = sa_episode.is_terminated, sa_episode.is_truncated
        self._episodes.finish_step(agent, sa_episode.get_rewards(-1), *flags, sa_episode.get_infos(-1), at=at)

    def end(self, episode: Any, at: int) -> None:
        """End the agents and the episode."""
        self.step(episode, at)
        for agent, sa_episode in episode.agent_episodes.items():
            if self._counts.get(agent):
                self._episodes.end_agent(agent, sa_episode.is_terminated, sa_episode.is_truncated, at=at)
        self._episodes.end(at=at)


def _describe(step: OpenStep, episode: Any) -> str | None:
    """Record the log probability and value estimate of the latest action; returns the policy's version."""
    logprob, value = _extra(episode, "action_logp"), _extra(episode, "vf_preds")
    if logprob is not None or value is not None:
        step.record(logprob=logprob, value_estimate=value)
    version = _extra(episode, _VERSION)
    return None if version is None else str(int(version))


def _extra(episode: Any, name: str) -> float | None:
    """Return a number that the policy returned with the latest action, or None."""
    return number(episode.get_extra_model_outputs(name, -1)) if name in episode.extra_model_outputs else None
