"""Environments whose rewards come from a reward spec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mttp
from mttp.errors import NeedsGroup, SpecError
from mttp.model.results import RESULT

gymnasium = pytest.importorskip("gymnasium")


class Walk(gymnasium.Env):  # type: ignore[misc, name-defined]
    """Moves as far as the action, with the reward 0."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1), {}

    def step(self, action: int) -> Any:
        self.place += action
        return np.array([float(self.place)]), 0.25, self.place >= 6, False, {}


def far(observation: Any) -> float:
    """A tenth of the place; raises beyond eight."""
    if observation[0] > 8:
        raise ValueError("too far")
    return float(observation[0]) / 10


def no_leap(action: int) -> bool:
    """Whether the action is one step."""
    return action < 4


def reached(observation: Any, episode_return: float, episode_length: int) -> float:
    """Whether the place is the goal."""
    assert episode_return == 0.25 * episode_length
    return float(observation[0] == 6)


def spec(function: Any, *checks: Any, scope: str = "step", **fields: Any) -> mttp.RewardSpec:
    """Return a spec of one component, and checks."""
    components = [{"name": "only", "kind": "rubric", "use": function, "range": [0, 1], "scope": scope}]
    components += [{"name": one.__name__, "kind": "check", "use": one, "scope": scope} for one in checks]
    fields = {"combine": "weighted_sum", "on_invalid": "floor"} | fields
    return mttp.RewardSpec(name="walk", version="1.0.0", components=components, **fields)


def play(env: Any, *actions: int) -> list[Any]:
    """Return the rewards of these actions."""
    env.reset(seed=1)
    return [env.step(action)[1] for action in actions]


@pytest.mark.parametrize("how", [mttp.instrument, mttp.wrap])
def test_each_step_is_rewarded_by_the_spec(session: mttp.Session, how: Any) -> None:
    """
    Each step has the spec's reward, recorded with components, gates, errors and identity.
    """
    paying = spec(far, no_leap)
    env = paying.for_gymnasium(Walk())
    target = how(env)

    paid = play(target if how is mttp.wrap else env, 1, 4, 4)

    (episode,) = mttp.read(session).episodes
    rewards = [step.rewards[0] for step in episode.steps]
    assert [0.1, 0.0, 0.0] == paid == [step.reward for step in episode.steps]
    assert [(), ("no_leap",), ("no_leap",)] == [reward.failed_checks for reward in rewards]
    assert {"only": 0.1, "no_leap": 1.0} == rewards[0].components
    assert {"only": "error"} == rewards[2].component_statuses
    assert [paying.identity] * 3 == [reward.spec for reward in rewards]
    assert [1] * 3 == [len(step.rewards) for step in episode.steps]
    assert (0.1, {}) == (episode.return_, dict(session.stats.faults))


def test_the_end_is_rewarded_by_terminal_components(session: mttp.Session) -> None:
    """
    Earlier steps have the reward 0 and an unchanged info.
    """
    env = spec(reached, scope="terminal").for_gymnasium(Walk())
    mttp.instrument(env)
    env.reset()

    infos = [env.step(3)[-1] for _ in range(2)]

    (episode,) = mttp.read(session).episodes
    assert [False, True] == [RESULT in info for info in infos]
    assert ([0.0, 1.0], 1.0) == ([step.reward for step in episode.steps], episode.return_)


def test_several_environments_are_rewarded_alike(session: mttp.Session) -> None:
    """
    The result is in a vector environment's infos.
    """
    paying = spec(far)
    env = gymnasium.vector.SyncVectorEnv([lambda: paying.for_gymnasium(Walk())] * 2)
    mttp.instrument(env)
    env.reset(seed=1)
    for action in ([1, 2], [3, 4], [2, 3]):
        env.step(np.array(action))
    env.close()

    episodes = mttp.read(session).episodes
    assert {0.1, 0.2} == {episode.steps[0].reward for episode in episodes}
    assert all(step.rewards[0].spec == paying.identity for episode in episodes for step in episode.steps)


RELATIVE = (NeedsGroup, "best compares episodes")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"on_invalid": "invalid"}, SpecError, "write on_invalid: floor"),
        (
            {"more": {"name": "judge", "kind": "judge", "use": far, "relative": True, "scope": "step"}},
            NeedsGroup,
            "judge",
        ),
    ],
)
def test_what_can_not_pay_steps_is_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    """
    Set-up raises with advice.
    """
    more = [given.pop("more")] if "more" in given else []
    part = {"name": "only", "kind": "rubric", "use": far, "range": [0, 1], "scope": "step"}
    fields = {"on_invalid": "floor"} | given
    walk = mttp.RewardSpec(name="walk", version="1.0.0", components=[part, *more], **fields)

    with pytest.raises(error, match=said):
        walk.for_gymnasium(Walk())


def test_steps_and_ends_are_rewarded_by_one_spec(session: mttp.Session) -> None:
    """
    The last step has both rewards; `step_total` and failed checks apply to each episode.
    """
    paying = mttp.RewardSpec(
        name="walk",
        version="1.0.0",
        combine="weighted_sum",
        on_invalid="floor",
        step_total=(0, 0.25),
        components=[
            {"name": "far", "kind": "shaping", "use": far, "range": [0, 1], "scope": "step"},
            {"name": "no_leap", "kind": "check", "use": no_leap, "scope": "step"},
            {"name": "reached", "kind": "verifier", "use": reached, "range": [0, 1]},
        ],
    )
    env = paying.for_gymnasium(Walk())
    mttp.instrument(env)

    walked, leapt = play(env, 1, 2, 3), play(env, 4, 2)

    found = mttp.read(session).episodes
    assert [0.1, 0.15, 1.0] == pytest.approx(walked)
    assert [0.0, 0.25] == pytest.approx(leapt)
    assert [pytest.approx(1.25), pytest.approx(0.25)] == [episode.return_ for episode in found]
    assert {"far", "no_leap", "reached"} == set(found[0].steps[-1].rewards[0].components)
    assert [1, 1, 1] == [len(step.rewards) for step in found[0].steps]
    assert ("no_leap",) == found[1].steps[-1].rewards[0].failed_checks


def test_a_step_that_errs_keeps_its_status_beside_the_floor(session: mttp.Session) -> None:
    """
    Both the trainer's info and the recording have the status.
    """
    env = spec(far).for_gymnasium(Walk())
    mttp.instrument(env)
    env.reset()
    infos = [env.step(action)[-1][RESULT] for action in (1, 4, 4)]

    (episode,) = mttp.read(session).episodes
    assert [("ok", 0.1), ("ok", 0.5), ("error", 0.0)] == [(one.status, one.value) for one in infos]
    assert [("ok", 0.1), ("ok", 0.5), ("error", 0.0)] == [
        (step.reward_status, step.reward) for step in episode.steps
    ]
