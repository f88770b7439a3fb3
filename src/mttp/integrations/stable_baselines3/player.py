"""One model's episodes and updates, over any number of calls of `learn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

from mttp.integrations.faults import guard
from mttp.integrations.gymnasium.env_episodes import MISSING, EnvEpisodes
from mttp.integrations.options import Options
from mttp.integrations.stable_baselines3 import environments, facts
from mttp.integrations.stable_baselines3.rollout import Rollout
from mttp.integrations.stable_baselines3.rollout_steps import RolloutSteps
from mttp.integrations.stable_baselines3.updates import ModelUpdates
from mttp.model.clock import Clock
from mttp.recording import configuration
from mttp.recording.session import Session

__all__ = ["LIBRARY", "ModelRecorder"]

LIBRARY = "stable_baselines3"


class ModelRecorder:
    """
    What is recorded of one model, which is not held: it goes when its user lets it go.

    An episode goes on over several calls of `learn`, as the environments do, and ends with the session.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = Clock()
        self._vector: Callable[[], Any] = _nothing
        self._tracks: list[EnvEpisodes] = []
        self._shown: tuple[Any, ...] = ()
        self._session: Session | None = None
        self._rollout = Rollout()
        self._updates = ModelUpdates()
        self._is_active = True

    def use(self, options: Options) -> None:
        """Take other options from here on."""
        self._options = options
        for track in self._tracks:
            track.use(options)

    # What the library tells.

    def begins(self, model: Any) -> None:
        """A call of `learn` begins; the environments were reset, unless it goes on with the last one."""
        self._clock = Clock()
        guard(LIBRARY, self._introduce, model)
        self._updates.begin(model)
        vector = model.get_env()
        guard(LIBRARY, environments.silence, vector, silent=True)
        if vector is not self._vector() or not any(model._last_obs is shown for shown in self._shown):
            self._reset(model, vector)
        elif model._last_obs is not self._shown[-1]:  # the last call was stopped by a callback, amid a step
            for index, track in enumerate(self._tracks):
                track.show(_row(model._last_obs, index), at=self._clock.now())

    def _introduce(self, model: Any) -> None:
        session = configuration.recording_session()
        if session is None:
            return
        session.describe(**facts.of_run(model))
        if session is not self._session:
            self._session = session
            session._before_close(self.leave, "training_ended")

    def _reset(self, model: Any, vector: Any) -> None:
        """Other environments, or they were reset: what was played is over."""
        self.leave("reset")
        is_first = not self._tracks
        self._vector = ref(vector)
        self._tracks = [
            EnvEpisodes(
                self._options,
                environments.identity(vector, index),
                lane=RolloutSteps,
            )
            for index in range(vector.num_envs)
        ]
        seeds = guard(LIBRARY, environments.seeds, model, vector) if is_first else None
        amid = guard(LIBRARY, environments.amid, model, vector)
        for index in range(vector.num_envs):
            if not (amid and amid[index]):  # else its next episode is the first that is seen as a whole
                seed = None if seeds is None else seeds[index]
                self._begin(model, index, model._last_obs, self._clock.now(), seed=seed)
        self._shown = (model._last_obs,)

    def _begin(self, model: Any, index: int, observations: Any, at: int, **known: Any) -> None:
        track = self._tracks[index]
        track.begin(_row(observations, index), began=at, shown=at, **self._updates.policy(), **known)
        track.closing = {"discount": getattr(model, "gamma", None)}

    def collects(self, model: Any) -> None:
        """A rollout begins; what was learned from the last one is known by now."""
        if not self._is_active:
            return
        self._updates.look(model, self._rollout.episodes, policy=self._options.policy)
        self._rollout = Rollout()

    def steps(self, model: Any, told: Mapping[str, Any]) -> None:
        """Every environment was stepped."""
        if not self._is_active:
            return
        at = self._clock.now()
        observations, dones, infos = told["new_obs"], told["dones"], told["infos"]
        actions = told["clipped_actions"] if "clipped_actions" in told else told["actions"]
        normalized = model.get_vec_normalize_env()
        rewards = told["rewards"] if normalized is None else normalized.get_original_reward()
        thoughts = _thoughts(told, len(dones))
        self._rollout.next(rewards)
        for index, track in enumerate(self._tracks):
            info = infos[index] if index < len(infos) else {}  # a vector may give none, as `[]`
            is_over = bool(dones[index])
            truncated = is_over and bool(info.get("TimeLimit.truncated", False))
            came = rewards[index], is_over and not truncated, truncated, info
            self._take(index, track, actions[index], came, thoughts[index], at)
            if is_over:
                track.closing = {**track.closing, **self._updates.closing()}
                track.finish(info.get("terminal_observation", MISSING), *came[1:], at=at)
                self._updates.played()
                self._begin(model, index, observations, at)
            else:
                track.show(_row(observations, index), at=at)
        self._shown = model._last_obs, observations

    def _take(
        self, index: int, track: EnvEpisodes, action: Any, came: tuple[Any, ...], thought: Any, at: int
    ) -> None:
        """Record one environment's step, in whichever way its episode's are."""
        if track.lane is None or not track.lives:
            track.act(action)
        episode = track.episode
        if track.lane is not None:
            self._rollout.add(index, episode, track.lane.count)
            track.lane.take(action, *came, thought, at=at)
        elif track.step is not None:
            if thought is not None:
                track.step.record(value_estimate=thought[0], logprob=thought[1])
            self._rollout.add(index, episode, track.step.index)
            track.pay(track.step, *came, at=at)

    def collected(self, model: Any) -> None:
        """A rollout is over, and what it was worth is computed."""
        buffer = getattr(model, "rollout_buffer", None)
        if buffer is not None and self._is_active:
            self._rollout.state(buffer)

    def ends(self, model: Any) -> None:
        """A call of `learn` ends; the episodes may go on in the next one."""
        if self._is_active:
            self._updates.look(model, self._rollout.episodes, policy=self._options.policy, is_last=True)
        self._rollout = Rollout()
        guard(LIBRARY, environments.silence, self._vector(), silent=False)

    # What ends it.

    def leave(self, reason: str) -> None:
        """Whatever goes on is left unfinished."""
        for track in self._tracks:
            track.abort(reason, self._clock.now())

    def give_up(self) -> None:
        """Something of ours failed: nothing more is recorded of these episodes."""
        guard(LIBRARY, self.leave, "recording_failed")

    def stop(self) -> None:
        """Record nothing from here on."""
        self._is_active = False
        guard(LIBRARY, self.leave, "detached")
        guard(LIBRARY, environments.silence, self._vector(), silent=False)


def _nothing() -> None:
    """Stands for environments that there are not yet."""


def _row(observations: Any, index: int) -> Any:
    """One environment's part of what all of them showed."""
    if isinstance(observations, Mapping):
        return {name: value[index] for name, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(value[index] for value in observations)
    return observations[index]


def _thoughts(told: Mapping[str, Any], count: int) -> Sequence[tuple[float, float] | None]:
    """Value and log probability of each environment's step; None where the algorithm has none."""
    values, logprobs = told.get("values"), told.get("log_probs")
    if values is None or logprobs is None:
        return [None] * count
    return list(zip(values.flatten().tolist(), logprobs.flatten().tolist(), strict=True))
