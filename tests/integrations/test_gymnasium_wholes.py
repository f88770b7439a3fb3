"""Episodes that nobody asks anything of while they are played: they say what those with a handle say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mttp
from mttp import configuration
from mttp.testing import assert_same

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces

OTHERWISE = ["trace_id", "id", "span_count", "env_wrappers"]
BOX = spaces.Box(-10, 10, (2,), np.float32)
DISCRETE = spaces.Discrete(1000)
BOTH = spaces.Dict({"place": spaces.Discrete(5), "speed": BOX})


class Scripted(gymnasium.Env):  # type: ignore[type-arg]
    """Three steps, the last of which ends the episode; `shows`, `pays` and `tells` by the step's number."""

    action_space = spaces.Discrete(2)
    length = 3

    def __init__(
        self,
        shows: Callable[[int], Any] = lambda number: np.full(2, number, np.float32),
        space: Any = BOX,
        *,
        pays: Callable[[int], Any] = lambda _: 1.0,
        tells: Callable[[int], Any] = lambda _: {},
        is_cut: bool = False,
    ) -> None:
        self.observation_space = space
        self._shows, self._pays, self._tells, self._is_cut = shows, pays, tells, is_cut
        self._number = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin anew."""
        super().reset(seed=seed, options=options)
        self._number = 0
        return self._shows(0), {}

    def step(self, action: Any) -> Any:
        """Go on."""
        self._number += 1
        number, over = self._number, self._number == self.length
        ends = over and not self._is_cut, over and self._is_cut
        return self._shows(number), self._pays(number), *ends, self._tells(number)


class Asking(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Asks for the episode's handle in each of its first steps."""

    has_asked = True

    def reset(self, **options: Any) -> Any:
        """Begin anew."""
        self.has_asked = False
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Ask once."""
        if not self.has_asked:
            self.has_asked = bool(mttp.current_episode())
        return self.env.step(action)


def last(usual: Callable[[int], Any], unusual: Any) -> Callable[[int], Any]:
    """What is usual, but for the last step."""
    return lambda number: unusual if number == Scripted.length else usual(number)


def vector(number: int) -> Any:
    """An array."""
    return np.full(2, number, np.float32)


def place(number: int) -> Any:
    """A member of a Dict space."""
    return {"place": number, "speed": vector(number)}


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "CartPole": lambda: gymnasium.make("CartPole-v1"),
    "FrozenLake": lambda: gymnasium.make("FrozenLake-v1"),
    "Pendulum": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7),
    "Blackjack": lambda: gymnasium.make("Blackjack-v1"),
    "dicts": lambda: Scripted(place, BOTH),
    "dicts that end out of their space": lambda: Scripted(last(place, {"place": 1}), BOTH),
    "int64": lambda: Scripted(np.int64, DISCRETE),
    "float64": lambda: Scripted(np.float64, DISCRETE),
    "bool_": lambda: Scripted(lambda number: np.bool_(number % 2), DISCRETE),
    "float32": lambda: Scripted(np.float32, DISCRETE),
    "nothing": lambda: Scripted(lambda _: None, DISCRETE),
    "text": lambda: Scripted(lambda number: f"état {number}\ud800", spaces.Text(10)),
    "integers that end beyond int64": lambda: Scripted(last(int, 2**63), DISCRETE),
    "integers that end as NaN": lambda: Scripted(last(int, float("nan")), DISCRETE),
    "integers that end as text": lambda: Scripted(last(int, "over"), DISCRETE),
    "arrays that end as others": lambda: Scripted(last(vector, np.zeros(2))),
    "arrays that end as a number": lambda: Scripted(last(vector, 5)),
    "arrays of no dimension": lambda: Scripted(np.array),
    "arrays of no elements": lambda: Scripted(lambda _: np.zeros((0,), np.float32)),
    "arrays in another order": lambda: Scripted(lambda number: np.arange(6.0).reshape(2, 3).T + number),
    "success": lambda: Scripted(tells=last(lambda _: {}, {"success": True})),
    "failure": lambda: Scripted(tells=last(lambda _: {}, {"is_success": np.bool_(False)})),
    "components": lambda: Scripted(tells=lambda number: {"reward_odd": 1.0} if number % 2 else {}),
    "truncated": lambda: Scripted(is_cut=True),
    "paid with NaN": lambda: Scripted(pays=last(float, float("nan"))),
    "paid beyond floats": lambda: Scripted(pays=lambda _: 1.7e308),
    "paid in integers": lambda: Scripted(pays=int),
    "paid in arrays": lambda: Scripted(pays=lambda number: np.array([number])),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"observations": False},
    {"actions": False},
    {"max_bytes": 8},
    {"max_bytes": 4},
    {"metadata": {"run": 1}},
    {"policy": "50%d", "group": "Größe", "task": 7},
]


def played(
    address: str, make: Callable[[], Any], **options: Any
) -> tuple[list[mttp.Episode], dict[str, int]]:
    """Three episodes, of which the first has a seed, and what was wrong with them."""
    with mttp.configure(address, run_id="run", steps="packed") as session:
        env = mttp.wrap(make(), **options)
        env.action_space.seed(1)
        count = 0
        for seed in (5, None, None):
            env.reset(seed=seed)
            over = False
            while not over:
                _, _, *ends, _ = env.step(env.action_space.sample())
                over, count = any(ends), count + 1
    assert (3, count, {}) == (session.stats.episodes, session.stats.steps, session.stats.lost)
    found = mttp.read(session if session.location is None else session.location)
    configuration.forget()
    return list(found.episodes), dict(session.stats.faults)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_episode_is_the_same_without_a_handle(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """
    In memory, and in files, where such episodes are written together.
    """
    make = ENVIRONMENTS[name]
    expected, wrong = played("memory://", lambda: Asking(make()), **options)

    for address in ("memory://", f"file://{tmp_path}/wholes.jsonl"):
        found, faults = played(address, make, **options)
        assert wrong == faults
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert_same(one, other, ignore=OTHERWISE)
