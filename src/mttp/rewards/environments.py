"""A Gymnasium environment that a reward spec pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from mttp.errors import NeedsGroup, SpecError
from mttp.model.results import RESULT

if TYPE_CHECKING:
    from mttp.rewards.protocols import TrainerSpec

__all__ = ["RewardedEnv"]


class RewardedEnv(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """
    `spec.for_gymnasium(env)`: the environment, with a spec's rewards in place of its own.

    Components of scope `step` pay each step; those of scope `terminal` an episode's last, beside the former.
    A sample has `observation`, `action`, `reward` (the environment's own), `terminated`, `truncated`, `info`,
    and `episode_return` and `episode_length`, own rewards and steps so far, this one included.
    The info of each rewarded step has the `RewardResult` under `mttp.model.results.RESULT`.
    """

    def __init__(self, env: Any, spec: TrainerSpec) -> None:
        RecordConstructorArgs.__init__(self, spec=spec)
        super().__init__(env)
        if spec.document.on_invalid != "floor":
            raise SpecError(
                f"spec {spec.name}: on_invalid is {spec.document.on_invalid}, and each step is to be paid"
                " a number; state on_invalid: floor"
            )
        if relative := [part.name for part in spec.parts if part.relative]:
            names = ", ".join(relative)
            raise NeedsGroup(f"spec {spec.name}: {names} compares episodes, and a step has no group")
        self.spec_of_rewards = spec
        """What pays."""
        scopes = {scope for one in spec.plan.components for scope in one.scopes}
        self._pays_steps, self._pays_ends = "step" in scopes, "terminal" in scopes
        self._episode = spec.for_episode()
        self._return, self._length = 0.0, 0

    def reset(self, **options: Any) -> Any:
        """As the environment does."""
        self._episode = self.spec_of_rewards.for_episode()
        self._return, self._length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, Any, Any, dict[str, Any]]:
        """As the environment does, with the spec's reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        self._length += 1
        sample = {
            "observation": observation,
            "action": action,
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": info,
            "episode_return": self._return,
            "episode_length": self._length,
        }
        is_over = bool(terminated or truncated)
        if not (self._pays_steps or is_over):
            return observation, 0.0, terminated, truncated, info
        if not self._pays_ends or not is_over:
            result = self._episode.step(sample)
        else:
            result = self._episode.last(sample) if self._pays_steps else self._episode.end(sample)
        assert result.value is not None, "on_invalid is floor"
        return observation, result.value, terminated, truncated, {**info, RESULT: result}
