"""`EpisodeRewards`, an episode's step rewards and total reward so far."""

from __future__ import annotations

from collections.abc import Sequence

from mttp.codec.segments import states_total, total
from mttp.model.episodes import Reward

__all__ = ["EpisodeRewards"]


class EpisodeRewards:
    """The rewards of the ended steps, and the total if one is stated."""

    _invalid = 0
    _has_step_not_ok = False
    _total: Reward | None = None
    _stated_return: float | None = None

    def __init__(self, step_rewards: list[float]) -> None:
        """Use `step_rewards`, to which the episode appends the numeric rewards of its steps."""
        self._step_rewards = step_rewards

    def invalid(self) -> None:
        """Count an ended step with an invalid reward."""
        self._invalid += 1

    def mark_not_ok(self) -> None:
        """Note that a step has a numeric reward with a status other than ok."""
        self._has_step_not_ok = True

    def steps(self, rewards: Sequence[float], *, invalid: int) -> None:
        """Add the rewards of several steps, and the number of steps with an invalid reward."""
        self._step_rewards.extend(rewards)
        self._invalid += invalid

    def total(self, scoring: Reward) -> None:
        """Set the total from a scoring of the episode; a missing or abstained one states no total."""
        self._total = scoring if states_total(scoring) else None

    def state_return(self, value: float) -> None:
        """Set a total that an earlier recording states."""
        self._stated_return = value

    @property
    def step_sum(self) -> float | None:
        """The sum of the numeric step rewards; None without any, or if the sum exceeds a float."""
        return total(self._step_rewards)

    @property
    def is_valid(self) -> bool:
        """Whether the total, or else each step reward, has the status ok; False for a floor reward."""
        return not self._has_step_not_ok if self._total is None else self._total.status == "ok"

    @property
    def basis(self) -> str | None:
        """episode if a total was stated, steps if only step rewards were, None without rewards."""
        if self._total is not None or self._stated_return is not None:
            return "episode"
        return "steps" if self._step_rewards or self._invalid else None

    def totals(self) -> tuple[float | None, float | None, str | None]:
        """Return the return, the sum of the step rewards, and the basis."""
        steps = self.step_sum
        return self._return_from(steps), steps, self.basis

    @property
    def return_(self) -> float | None:
        """The episode's return; None if it is not known."""
        return self._return_from(self.step_sum)

    def _return_from(self, steps: float | None) -> float | None:
        if self._stated_return is not None:
            return self._stated_return
        if self._total is not None:
            return self._total.value
        return None if self._invalid else steps
