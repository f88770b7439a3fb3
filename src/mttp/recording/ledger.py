"""What an episode was paid so far, by its steps and in total."""

from __future__ import annotations

from collections.abc import Sequence

from mttp.codec.segments import states_total, total
from mttp.model.episodes import Reward

__all__ = ["EpisodeRewards"]


class EpisodeRewards:
    """Step rewards as they come, and the total where one is stated."""

    _invalid = 0
    _doubtful = False
    _total: Reward | None = None
    _overruled: float | None = None

    def __init__(self, step_rewards: list[float]) -> None:
        """Of steps whose rewards, as far as they are numbers, are entered into that list."""
        self._paid = step_rewards

    def invalid(self) -> None:
        """Enter an ended step whose reward is unknown."""
        self._invalid += 1

    def doubt(self) -> None:
        """Enter that a step was paid although it could not be scored."""
        self._doubtful = True

    def steps(self, paid: Sequence[float], *, invalid: int) -> None:
        """Enter what several steps paid, and how many of the others something that is no number."""
        self._paid.extend(paid)
        self._invalid += invalid

    def total(self, scoring: Reward) -> None:
        """Enter a scoring of the whole episode; one that is missing or abstained states no total."""
        self._total = scoring if states_total(scoring) else None

    def overrule(self, value: float) -> None:
        """Enter a total that an earlier recording states."""
        self._overruled = value

    @property
    def step_sum(self) -> float | None:
        """Sum of the step rewards that are numbers; None when none is, or the sum is beyond a float."""
        return total(self._paid)

    @property
    def is_valid(self) -> bool:
        """Whether what was paid is what was scored, and not for instance a floor in place of it."""
        return not self._doubtful if self._total is None else self._total.status == "ok"

    @property
    def basis(self) -> str | None:
        """episode where a total was stated, steps where rewards were, None where nothing was."""
        if self._total is not None or self._overruled is not None:
            return "episode"
        return "steps" if self._paid or self._invalid else None

    def totals(self) -> tuple[float | None, float | None, str | None]:
        """What was paid in all, by the steps alone, and which of both it is."""
        steps = self.step_sum
        return self._all(steps), steps, self.basis

    @property
    def paid(self) -> float | None:
        """What the whole episode was paid; None where that is not known."""
        return self._all(self.step_sum)

    def _all(self, steps: float | None) -> float | None:
        if self._overruled is not None:
            return self._overruled
        if self._total is not None:
            return self._total.value
        return None if self._invalid else steps
