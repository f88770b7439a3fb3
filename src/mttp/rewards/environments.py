"""A Gymnasium wrapper whose rewards come from a reward spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from mttp.errors import NeedsGroup, SpecError
from mttp.model.results import RESULT

if TYPE_CHECKING:
    from mttp.rewards.protocols import TrainerSpec


class RewardedEnv(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """
    An environment with a spec's rewards in place of its own; `spec.for_gymnasium(env)` makes one.

    Components of scope `step` score each step, and those of scope `terminal` an episode's last step as well.
    A sample has `observation`, `action`, `reward` (the environment's own), `terminated`, `truncated`, `info`,
    `episode_return` (the sum of the environment's rewards so far) and `episode_length` (the steps so far).
    The info of each scored step has the `RewardResult` under `mttp.model.results.RESULT`.
    """

    def __init__(self, env: Any, spec: TrainerSpec) -> None:
        RecordConstructorArgs.__init__(self, spec=spec)
        super().__init__(env)
        if spec.document.on_invalid != "floor":
            raise SpecError(
                f"spec {spec.name}: on_invalid is {spec.document.on_invalid}, and an environment needs a"
                " number at each step; write on_invalid: floor"
            )
        if relative := [part.name for part in spec.parts if part.relative]:
            names = ", ".join(relative)
            raise NeedsGroup(
                f"spec {spec.name}: {names} compares the samples of a group, and a step has no group;"
                " use a component that is not relative"
            )
        self.spec_of_rewards = spec
        """The spec that scores steps and ends."""
        scopes = {scope for component in spec.plan.components for scope in component.scopes}
        self._scores_steps, self._scores_ends = "step" in scopes, "terminal" in scopes
        self._episode = spec.for_episode()
        self._return, self._length = 0.0, 0

    def reset(self, **options: Any) -> Any:
        """Reset the environment and the episode's score."""
        self._episode = self.spec_of_rewards.for_episode()
        self._return, self._length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, Any, Any, dict[str, Any]]:
        """Step the environment, and return the spec's reward in place of its own."""
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
        if not (self._scores_steps or is_over):
            return observation, 0.0, terminated, truncated, info
        if not self._scores_ends or not is_over:
            result = self._episode.step(sample)
        else:
            result = self._episode.last(sample) if self._scores_steps else self._episode.end(sample)
        assert result.value is not None, "on_invalid is floor"
        return observation, result.value, terminated, truncated, {**info, RESULT: result}
