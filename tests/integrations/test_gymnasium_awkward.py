"""Environments that return odd values: each costs only itself, and the batch's other steps are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from awkward import AWKWARD

import mttp

gymnasium = pytest.importorskip("gymnasium")

STEPS = 6
PLACES = ("observation", "action", "reward", "info", "infos", "flag")
BOX = gymnasium.spaces.Box(-1, 10, (3,))


class Odd(gymnasium.Env):  # type: ignore[misc]
    """Returns an odd value in its third step."""

    observation_space = BOX
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, place: str, value: Callable[[], Any]) -> None:
        self.place, self.value, self.count = place, value, 0

    def reset(self, **_: Any) -> Any:
        """Start again."""
        self.count = 0
        return np.zeros(3, np.float32), {}

    def action(self, count: int) -> Any:
        """Return the action of a step."""
        return self.value() if self.place == "action" and count == 2 else 1

    def step(self, action: Any) -> Any:
        """Return the results of a step."""
        self.count += 1
        odd = self.place if self.count == 3 else ""
        observation = self.value() if odd == "observation" else np.full(3, self.count, np.float32)
        reward = self.value() if odd == "reward" else 1.0
        terminated = self.value() if odd == "flag" else False
        return observation, reward, terminated, self.count >= STEPS, self.info(odd)

    def info(self, odd: str) -> Any:
        """Return the info of a step."""
        if odd == "infos":
            return self.value()
        names = ("k", "reward_x", "rewards", "success")
        return {name: self.value() for name in names} if odd == "info" else {}


class OddVector(gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """Two environments, the second of which returns an odd value in its third step."""

    num_envs = 2
    single_observation_space, single_action_space = BOX, Odd.action_space
    observation_space = gymnasium.vector.utils.batch_space(BOX, 2)
    action_space = gymnasium.vector.utils.batch_space(Odd.action_space, 2)
    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's

    def __init__(self, place: str, value: Callable[[], Any]) -> None:
        self.odd = Odd(place, value)

    def reset(self, **_: Any) -> Any:
        """Start again."""
        self.odd.reset()
        return np.zeros((2, 3), np.float32), {}

    def action(self, count: int) -> Any:
        """Return the actions of a step."""
        return [1, self.odd.action(count)]

    def step(self, actions: Any) -> Any:
        """Return the results of a step."""
        observation, reward, terminated, truncated, infos = self.odd.step(actions)
        if self.odd.place == "info" and infos:
            infos = {name: [0, value] for name, value in infos.items()}
        usual = np.full(3, self.odd.count, np.float32)
        return [usual, observation], [1.0, reward], [False, terminated], [truncated] * 2, infos


@pytest.mark.parametrize("steps", ["packed", "auto"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [Odd, OddVector])
def test_an_odd_value_of_an_environment_costs_only_itself(kind: Any, place: str, steps: Any) -> None:
    """
    The other steps and the other values of its step are as without it, and the episode goes on.
    """
    for name, value in AWKWARD.items():
        if kind is OddVector and name == "deep list":  # open: the next step may lack its action
            continue
        with mttp.configure("memory://", steps=steps, provenance=False) as session:
            env = kind(place, value)
            mttp.instrument(env)
            env.reset()
            for count in range(STEPS):
                env.step(env.action(count))
        # A value that is true as a flag ends an episode early, and another one follows.
        episodes = mttp.read(session).episodes
        odd = next(episode for episode in episodes if episode.env_index in (None, 1))
        assert "internal_error" not in session.stats.faults, name
        assert "integration_error" not in session.stats.faults, name
        assert odd.status == "completed", name
        if place == "flag" and len(odd.steps) == 3:  # a value that is true ends the episode
            assert odd.steps[-1].terminated, name
            continue
        assert len(odd.steps) == STEPS, name
        rewards = [step.reward for step in odd.steps]
        assert rewards[:2] + rewards[3:] == [1.0] * 5, name
        for index, step in enumerate(odd.steps):
            if place != "observation" or index != 3:
                assert list(step.observation) == [index] * 3, name
            if place != "action" or index != 2:
                assert step.action == 1, name


def test_a_flag_without_a_truth_value_is_a_fault(session: mttp.Session) -> None:
    """
    It ends nothing, and the step has a fault that names it.
    """
    env = mttp.wrap(Odd("flag", lambda: np.zeros(2, bool)))
    env.reset()
    for _ in range(STEPS):
        env.step(1)

    (episode,) = mttp.read(session).episodes
    assert [len(step.faults) for step in episode.steps] == [0, 0, 1, 0, 0, 0]
    assert episode.steps[2].faults[0].startswith("terminated_invalid: ")
    assert episode.steps[2].reward == 1.0
