"""Recording the environments of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from mttp.integrations.faults import fault
from mttp.integrations.gymnasium import facts, infos
from mttp.integrations.gymnasium.env_episodes import MISSING, EnvEpisodes
from mttp.integrations.gymnasium.env_steps import MemberSteps
from mttp.integrations.gymnasium.randomness import Seeding
from mttp.integrations.nesting import EVERYTHING
from mttp.integrations.options import Options
from mttp.model.interrupts import raise_interrupt

__all__ = ["RecordedVectorEnv"]


class RecordedVectorEnv:
    """
    Records each environment of one vector environment.

    The autoreset mode says when an environment is reset after its episode's end:
    NEXT_STEP resets in the next step call, which ignores the action and has no reward;
    SAME_STEP resets in the same step call, and the infos have the last observation;
    DISABLED leaves the reset to the caller.
    """

    key: Any = EVERYTHING
    buffered_steps = None

    def __init__(self, vector: Any, options: Options) -> None:
        self._vector = vector
        self._mode = _mode(vector)
        self._seeding = Seeding(vector)
        self._reset_at = 0
        count = int(vector.num_envs)
        self._metadata = {
            "vector_env": type(vector.unwrapped).__name__,
            "num_envs": count,
            "autoreset_mode": self._mode.value,
        }
        self._over = [False] * count
        self._reset_indices = list(range(count))
        self._episodes = [
            EnvEpisodes(options, partial(facts.of_member, vector, index), buffered_steps=MemberSteps)
            for index in range(count)
        ]

    def use(self, options: Options) -> None:
        """Use new options from now on."""
        for episodes in self._episodes:
            episodes.use(options)

    # Resets.

    def before_reset(self, seed: Any, options: Any, *, at: int) -> None:
        """Prepare for a reset of all environments, or of those in `options["reset_mask"]`."""
        self._reset_at = at
        mask = options.get("reset_mask") if isinstance(options, Mapping) else None
        self._reset_indices = [i for i in range(len(self._episodes)) if mask is None or mask[i]]
        self._seeding.before(self._reset_indices, seed)

    def after_reset(self, result: Any, *, at: int) -> None:
        """Take the result of a reset."""
        observations, _ = result
        observed = _rows(self._vector.observation_space, observations, len(self._episodes))
        for index in self._reset_indices:
            self._over[index] = False
            self._episodes[index].abort("reset", self._reset_at)
            self._begin(index, observed[index], at, self._seeding.after(index))

    def _begin(self, index: int, observation: Any, at: int, seeding: dict[str, Any]) -> None:
        metadata = {**self._metadata, **seeding.get("metadata", {})}
        self._episodes[index].begin(
            observation, reset_at=self._reset_at, observed_at=at, **{**seeding, "metadata": metadata}
        )

    # Steps.

    def before_step(self, action: Any, *, at: int) -> None:
        """Start a step of each environment that is in an episode."""
        self._reset_at = at
        ended = [index for index, over in enumerate(self._over) if over]
        if ended and self._mode is AutoresetMode.NEXT_STEP:
            self._seeding.before(ended, None)
        elif ended:
            name = type(self._vector.unwrapped).__name__
            fault("step_after_end", f"{name} was stepped after the end of episodes, of environments {ended}")
        actions = _rows(self._vector.action_space, action, len(self._episodes))
        for episodes, over, env_action in zip(self._episodes, self._over, actions, strict=True):
            if not over:
                episodes.start_step(env_action)
                if episodes.buffered_steps is not None:
                    episodes.buffered_steps.act(env_action)

    def after_step(self, result: Any, *, at: int) -> None:
        """Take the result of a step."""
        observations, rewards, terminations, truncations, batch_infos = result
        before, self._over = self._over, self._now_over(terminations, truncations)
        observed = _rows(self._vector.observation_space, observations, len(self._episodes))
        for index, was_over in enumerate(before):
            if not was_over:
                outcome = (
                    rewards[index],
                    terminations[index],
                    truncations[index],
                    infos.of_one(batch_infos, index),
                )
                self._finish_step(index, observed[index], *outcome, at=at)
            elif self._mode is AutoresetMode.NEXT_STEP:
                self._begin(index, observed[index], at, self._seeding.after(index))

    def _now_over(self, terminations: Any, truncations: Any) -> list[bool]:
        """Return, for each environment, whether its episode is over until a reset."""
        if self._mode is AutoresetMode.SAME_STEP:
            return [False] * len(self._episodes)
        flags = zip(_listed(terminations), _listed(truncations), self._over, strict=True)
        stays = self._mode is AutoresetMode.DISABLED
        return [
            any(infos.flags(terminated, truncated, [])) or (stays and over)
            for terminated, truncated, over in flags
        ]

    def _finish_step(
        self,
        index: int,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Mapping[Any, Any],
        *,
        at: int,
    ) -> None:
        episodes = self._episodes[index]
        if self._mode is not AutoresetMode.SAME_STEP or not any(infos.flags(terminated, truncated, [])):
            episodes.finish_step(observation, reward, terminated, truncated, info, at=at)
            return
        last, last_info = info.get("final_obs", MISSING), info.get("final_info")
        episodes.finish_step(last, reward, terminated, truncated, last_info, at=at)
        self._reset_at = at
        self._begin(index, observation, at, {})

    # Ends.

    def on_error(self, error: BaseException) -> None:
        """End all open steps and their episodes in error; a failed reset aborts the open episodes."""
        for episodes in self._episodes:
            if episodes.buffered_steps is not None:
                episodes.buffered_steps.open_acting()
        if all(episodes.step is None for episodes in self._episodes):
            self.abort("reset", at=self._reset_at)
        for episodes in self._episodes:
            if episodes.step is not None:
                episodes.fail(error)

    def abort(self, reason: str, *, at: int) -> None:
        """Abort the open episodes."""
        for episodes in self._episodes:
            episodes.close(reason, at)


def _mode(vector: Any) -> AutoresetMode:
    """Return the autoreset mode; NEXT_STEP, Gymnasium's default, if the vector states none."""
    mode = getattr(vector.unwrapped, "autoreset_mode", None) or vector.metadata.get("autoreset_mode")
    return AutoresetMode.NEXT_STEP if mode is None else AutoresetMode(mode)


def _listed(flags: Any) -> Any:
    """Return flags as a list, from an array or tensor of any library."""
    return flags.tolist() if hasattr(flags, "tolist") else flags


def _rows(space: Any, batch: Any, count: int) -> list[Any]:
    """Split a batch by environment."""
    try:
        rows = list(iterate(space, batch))
    except Exception as error:  # a space that Gymnasium can't take apart
        raise_interrupt(error)
        rows = []
    return rows if len(rows) == count else [batch[index] for index in range(count)]
