"""A Gymnasium environment that a reward spec pays for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from mttp.errors import NeedsGroup, SpecError
from mttp.rewards import RESULT

if TYPE_CHECKING:
    from mttp.rewards.paying import Paying
    from mttp.rewards.results import RewardResult

__all__ = ["Rewarded"]


class Rewarded(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """
    `spec.for_gymnasium(env)`: the environment, with a spec's rewards in place of its own.

    Components of scope `step` pay each step; those of scope `terminal` an episode's last, others get 0.
    A sample has `observation`, `action`, `reward` (the environment's own), `terminated`, `truncated`, `info`,
    and `episode_return` and `episode_length`, own rewards and steps so far, this one included.
    Each step that is paid has the result under `mttp.rewards.RESULT` in its info, from which it is recorded.
    """

    def __init__(self, env: Any, spec: Paying) -> None:
        RecordConstructorArgs.__init__(self, spec=spec)
        super().__init__(env)
        scopes = {part.scope for part in spec.parts}
        if len(scopes) > 1:
            raise SpecError(
                f"spec {spec.name} pays both steps and ends; an environment takes a spec of one scope"
            )
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
        self._score = spec.score_step if scopes == {"step"} else spec.score
        self._pays_steps = scopes == {"step"}
        self._return, self._length = 0.0, 0

    def reset(self, **options: Any) -> Any:
        """As the environment does."""
        self._return, self._length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, Any, Any, dict[str, Any]]:
        """As the environment does, with the spec's reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        self._length += 1
        if not (self._pays_steps or terminated or truncated):
            return observation, 0.0, terminated, truncated, info
        result: RewardResult = self._score(
            {
                "observation": observation,
                "action": action,
                "reward": float(reward),
                "terminated": bool(terminated),
                "truncated": bool(truncated),
                "info": info,
                "episode_return": self._return,
                "episode_length": self._length,
            }
        )
        assert result.value is not None, "on_invalid is floor"
        return observation, result.value, terminated, truncated, {**info, RESULT: result}
