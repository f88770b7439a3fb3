"""Recording one model's episodes and updates, over any number of calls of `learn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from mttp.codec.plain import number
from mttp.codec.updates import logged_fields
from mttp.integrations.faults import guard
from mttp.integrations.gymnasium.env_episodes import MISSING, EnvEpisodes
from mttp.integrations.gymnasium.env_steps import MemberSteps
from mttp.integrations.options import Options
from mttp.integrations.stable_baselines3 import environments, facts
from mttp.model.clock import Clock
from mttp.recording import configuration, feedback, training
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.session import Session

__all__ = ["LIBRARY", "ModelRecorder", "ModelUpdates"]

LIBRARY = "stable_baselines3"


@dataclass(slots=True)
class _StepRange:
    """Consecutive steps of one episode in the buffer."""

    episode: OpenEpisode
    env: int
    """The buffer's column."""
    row: int
    """The buffer's row of the first step."""
    first: int
    """The index of the first step in the episode."""
    count: int = 1


class Rollout:
    """One rollout; rows count from 0."""

    def __init__(self) -> None:
        self._rewards: list[Any] = []
        self._ranges: list[_StepRange] = []
        self._last: dict[int, _StepRange] = {}

    @property
    def episodes(self) -> list[OpenEpisode]:
        """The episodes with steps in the rollout, each once."""
        return list({steps.episode.trace_id: steps.episode for steps in self._ranges}.values())

    def next(self, rewards: Any) -> None:
        """Start a row with the environments' rewards, shape [environments]."""
        self._rewards.append(rewards.copy())

    def add(self, env: int, episode: OpenEpisode, index: int) -> None:
        """Assign the current row's step of an environment to a step of an episode."""
        last = self._last.get(env)
        if last is not None and last.episode is episode and last.first + last.count == index:
            last.count += 1
            return
        steps = self._last[env] = _StepRange(episode, env, len(self._rewards) - 1, index)
        self._ranges.append(steps)

    def annotate(self, buffer: Any) -> None:
        """
        Record the buffer's advantages, return targets and changed rewards on the steps.

        The buffer's arrays have the shape [rows, environments].
        """
        rewards = np.array(self._rewards)
        trained = buffer.rewards[: len(rewards)]
        changed = np.where(trained != rewards.astype(trained.dtype), trained, np.nan)
        for steps in self._ranges:
            rows = slice(steps.row, steps.row + steps.count), steps.env
            numbers = {"advantage": buffer.advantages[rows], "return_target": buffer.returns[rows]}
            if not np.isnan(changed[rows]).all():
                numbers["trained_reward"] = changed[rows]
            feedback.annotate((steps.episode, steps.first), "steps", numbers, by="stable-baselines3")


_PREFIX = "train/"
_COUNT = "train/n_updates"
_NEGATIVE_ENTROPY = "train/entropy_loss"


class ModelUpdates:
    """
    Records one model's updates.

    For an on-policy algorithm, which learns once per rollout, an update is recorded per rollout.
    For other algorithms, which learn every few steps, an update is recorded once an episode has ended.
    """

    def __init__(self) -> None:
        self._count = 0
        self._index: int | None = None
        self._has_episode_ended = False

    def begin(self, model: Any) -> None:
        """Start from the model's number of updates before its first recorded training."""
        if self._index is None:
            self._count = int(model._n_updates)

    def policy(self) -> dict[str, Any]:
        """Return the facts about the policy for the start of an episode."""
        return {"policy_version": self._count, "policy_update_index": self._index}

    def end_facts(self) -> dict[str, Any]:
        """Return the facts about the policy for the end of an episode."""
        return {"policy_version_end": str(self._count)}

    def on_episode_end(self) -> None:
        """Note that an episode has ended."""
        self._has_episode_ended = True

    def record(
        self, model: Any, episodes: Sequence[OpenEpisode], *, policy: object, is_last: bool = False
    ) -> None:
        """Record an update if the model has learned since the last one."""
        is_on_policy = hasattr(model, "rollout_buffer")
        logged = model.logger.name_to_value
        count = int(logged.get(_COUNT, self._count))
        if count == self._count or not (is_on_policy or is_last or self._has_episode_ended):
            return
        numbers = {name: value for name, value in logged.items() if name.startswith(_PREFIX)}
        numbers = {name: figure for name, value in numbers.items() if (figure := number(value)) is not None}
        if _NEGATIVE_ENTROPY in numbers:
            numbers["entropy"] = -numbers.pop(_NEGATIVE_ENTROPY)
        numbers.pop(_COUNT, None)
        fields, others = logged_fields(numbers)
        metrics = {name.removeprefix(_PREFIX): value for name, value in others.items()}
        update = training.update(
            **fields,
            policy=policy,
            policy_version_before=self._count,
            policy_version_after=count,
            episodes=episodes if is_on_policy else (),
            metrics={"gradient_steps": float(count - self._count), **metrics},
        )
        self._count, self._index, self._has_episode_ended = count, update.index, False


class ModelRecorder:
    """
    Records one model, without holding a reference to it or to its environments.

    An open episode continues in the next call of `learn`, as the environments do, and ends with the session.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = Clock()
        self._vector: Callable[[], Any] = _no_vector
        self._episodes: list[EnvEpisodes] = []
        self._observations: tuple[Any, ...] = ()
        self._session: Session | None = None
        self._rollout = Rollout()
        self._updates = ModelUpdates()
        self._is_active = True

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        self._options = options
        for episodes in self._episodes:
            episodes.use(options)

    # Hooks of the library's callback.

    def on_training_start(self, model: Any) -> None:
        """Start a call of `learn`, with new episodes if the environments were reset."""
        self._clock = Clock()
        guard(LIBRARY, self._describe_run, model)
        self._updates.begin(model)
        vector = model.get_env()
        guard(LIBRARY, environments.silence, vector, silent=True)
        is_known = any(model._last_obs is known for known in self._observations)
        if vector is not self._vector() or not is_known:
            self._reset(model, vector)
        elif model._last_obs is not self._observations[-1]:  # a callback stopped the last call within a step
            for index, episodes in enumerate(self._episodes):
                episodes.observe(_row(model._last_obs, index), at=self._clock.now())

    def _describe_run(self, model: Any) -> None:
        session = configuration.recording_session()
        if session is None:
            return
        session.describe(**facts.of_run(model))
        if session is not self._session:
            self._session = session
            session._before_close(self.abort, "training_ended")

    def _reset(self, model: Any, vector: Any) -> None:
        """Abort the open episodes, and prepare new ones, of new environments or of a reset vector."""
        self.abort("reset")
        is_first = not self._episodes
        self._vector = ref(vector)
        self._episodes = [
            EnvEpisodes(
                self._options,
                environments.identity(vector, index),
                buffered_steps=MemberSteps,
            )
            for index in range(vector.num_envs)
        ]
        seeds = guard(LIBRARY, environments.seeds, model, vector) if is_first else None
        in_episode = guard(LIBRARY, environments.in_episode, model, vector)
        for index in range(vector.num_envs):
            if not (in_episode and in_episode[index]):  # else recording starts with its next episode
                seed = None if seeds is None else seeds[index]
                self._begin(model, index, model._last_obs, self._clock.now(), seed=seed)
        self._observations = (model._last_obs,)

    def _begin(self, model: Any, index: int, observations: Any, at: int, **known: Any) -> None:
        episodes = self._episodes[index]
        episodes.begin(
            _row(observations, index), reset_at=at, observed_at=at, **self._updates.policy(), **known
        )
        episodes.end_facts = {"discount": getattr(model, "gamma", None)}

    def on_rollout_start(self, model: Any) -> None:
        """Record the updates that followed the last rollout, and start a rollout."""
        if not self._is_active:
            return
        self._updates.record(model, self._rollout.episodes, policy=self._options.policy)
        self._rollout = Rollout()

    def on_step(self, model: Any, variables: Mapping[str, Any]) -> None:
        """Record a step of every environment from the local variables of the library's loop."""
        if not self._is_active:
            return
        at = self._clock.now()
        observations, dones, infos = variables["new_obs"], variables["dones"], variables["infos"]
        actions = variables["clipped_actions"] if "clipped_actions" in variables else variables["actions"]
        normalized = model.get_vec_normalize_env()
        rewards = variables["rewards"] if normalized is None else normalized.get_original_reward()
        estimates = _policy_estimates(variables, len(dones))
        self._rollout.next(rewards)
        for index, episodes in enumerate(self._episodes):
            info = infos[index] if index < len(infos) else {}  # some vectors return an empty list
            is_over = bool(dones[index])
            truncated = is_over and bool(info.get("TimeLimit.truncated", False))
            result = rewards[index], is_over and not truncated, truncated, info
            self._record_step(index, episodes, actions[index], result, estimates[index], at)
            if is_over:
                episodes.end_facts = {**episodes.end_facts, **self._updates.end_facts()}
                episodes.end_episode(info.get("terminal_observation", MISSING), *result[1:], at=at)
                self._updates.on_episode_end()
                self._begin(model, index, observations, at)
            else:
                episodes.observe(_row(observations, index), at=at)
        self._observations = model._last_obs, observations

    def _record_step(
        self, index: int, episodes: EnvEpisodes, action: Any, result: tuple[Any, ...], estimates: Any, at: int
    ) -> None:
        """Record one environment's step, as a row or with a handle."""
        if episodes.buffered_steps is None or not episodes.is_recording:
            episodes.start_step(action)
        episode = episodes.episode
        if episodes.buffered_steps is not None:
            self._rollout.add(index, episode, episodes.buffered_steps.count)
            episodes.buffered_steps.act(action)
            episodes.buffered_steps.take(*result, estimates, at=at)
        elif episodes.step is not None:
            if estimates is not None:
                episodes.step.record(value_estimate=estimates[0], logprob=estimates[1])
            self._rollout.add(index, episode, episodes.step.index)
            episodes.end_step(episodes.step, *result, at=at)

    def on_rollout_end(self, model: Any) -> None:
        """Record the advantages and return targets of the rollout."""
        buffer = getattr(model, "rollout_buffer", None)
        if buffer is not None and self._is_active:
            self._rollout.annotate(buffer)

    def on_training_end(self, model: Any) -> None:
        """Record the last updates of a call of `learn`; open episodes stay open."""
        if self._is_active:
            self._updates.record(model, self._rollout.episodes, policy=self._options.policy, is_last=True)
        self._rollout = Rollout()
        guard(LIBRARY, environments.silence, self._vector(), silent=False)

    # Ends of recording.

    def abort(self, reason: str) -> None:
        """Abort the open episodes."""
        for episodes in self._episodes:
            episodes.abort(reason, self._clock.now())

    def abort_after_error(self) -> None:
        """Abort the open episodes after an error in a hook."""
        guard(LIBRARY, self.abort, "recording_failed")

    def stop(self) -> None:
        """Stop recording."""
        self._is_active = False
        guard(LIBRARY, self.abort, "detached")
        guard(LIBRARY, environments.silence, self._vector(), silent=False)


def _no_vector() -> None:
    """The vector before the first training."""


def _row(observations: Any, index: int) -> Any:
    """Return one environment's part of a batch of observations."""
    if isinstance(observations, Mapping):
        return {name: value[index] for name, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(value[index] for value in observations)
    return observations[index]


def _policy_estimates(variables: Mapping[str, Any], count: int) -> Sequence[tuple[float, float] | None]:
    """Return the value estimate and log probability of each environment's step, or None for each."""
    values, logprobs = variables.get("values"), variables.get("log_probs")
    if values is None or logprobs is None:
        return [None] * count
    return list(zip(values.flatten().tolist(), logprobs.flatten().tolist(), strict=True))
