"""The integration with PettingZoo's own environments and its own tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mttp

pytest.importorskip("pettingzoo.test")
pytest.importorskip("pygame")

from pettingzoo.butterfly.cooperative_pong import cooperative_pong as cooperative_pong_v6
from pettingzoo.classic.connect_four import connect_four as connect_four_v3
from pettingzoo.classic.rps import rps as rps_v2
from pettingzoo.classic.tictactoe import tictactoe as tictactoe_v3
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

TURNS = {"tictactoe_v3": tictactoe_v3.env, "connect_four_v3": connect_four_v3.env, "rps_v2": rps_v2.env}
PARALLEL = {
    "rps_v2": lambda: rps_v2.parallel_env(max_cycles=6),
    "cooperative_pong_v6": lambda: cooperative_pong_v6.parallel_env(max_cycles=8),
}

pytestmark = pytest.mark.filterwarnings("ignore")


def random_turns(env: Any) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Play legal random moves; return the rewards and actions of each agent as its policy sees them."""
    rng = np.random.default_rng(3)
    rewards: dict[str, list[float]] = {}
    actions: dict[str, list[int]] = {}
    env.reset(seed=5)
    for agent in env.agent_iter():
        seen, reward, terminated, truncated, _ = env.last()
        rewards.setdefault(agent, []).append(float(reward))
        mask = seen["action_mask"] if isinstance(seen, dict) else np.ones(3)
        action = None if terminated or truncated else int(rng.choice(np.flatnonzero(mask)))
        if action is not None:
            actions.setdefault(agent, []).append(action)
        env.step(action)
    env.close()
    return {agent: each[1:] for agent, each in rewards.items()}, actions


@pytest.mark.parametrize("name", TURNS)
def test_rewards_and_actions_are_the_librarys(session: mttp.Session, name: str) -> None:
    """
    Each agent's steps have the rewards of `last` and the actions of the loop, unchanged.
    """
    expected = random_turns(TURNS[name]())
    env = TURNS[name]()
    mttp.instrument(env)

    actual = random_turns(env)

    (episode,) = mttp.read(session)
    steps = {agent.id: [step for step in episode.steps if step.agent == agent.id] for agent in episode.agents}
    recorded = (
        {agent: [step.reward for step in each] for agent, each in steps.items()},
        {agent: [step.action for step in each] for agent, each in steps.items()},
    )
    assert (expected, expected) == (actual, recorded)
    assert (name, "completed", {}) == (episode.env, episode.status, dict(session.stats.faults))


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_values_are_the_librarys(session: mttp.Session, name: str) -> None:
    """
    Each agent's steps have the observations, actions and rewards that the loop had.
    """
    env = PARALLEL[name]()
    mttp.instrument(env, max_bytes=10**6)
    expected: dict[str, list[Any]] = {}
    seen, _ = env.reset(seed=5)
    rng = np.random.default_rng(3)
    while env.agents:
        actions = {agent: int(rng.integers(3)) for agent in env.agents}
        before = {agent: np.array(value) for agent, value in seen.items()}
        seen, rewards, *_ = env.step(actions)
        for agent, action in actions.items():
            expected.setdefault(agent, []).append((before[agent].tobytes(), action, float(rewards[agent])))
    env.close()

    (episode,) = mttp.read(session)
    assert expected == {
        agent.id: [
            (np.array(step.observation).tobytes(), step.action, step.reward)
            for step in episode.steps
            if step.agent == agent.id
        ]
        for agent in episode.agents
    }


@pytest.mark.parametrize(
    ("name", "check"),
    [
        *((name, lambda name=name: api_test(TURNS[name](), num_cycles=40)) for name in TURNS),
        *(
            (name, lambda name=name: seed_test(TURNS[name], num_cycles=10))
            for name in ("tictactoe_v3", "rps_v2")
        ),
        *((name, lambda name=name: parallel_api_test(PARALLEL[name](), num_cycles=40)) for name in PARALLEL),
        ("rps_v2", lambda: parallel_seed_test(PARALLEL["rps_v2"], num_cycles=10)),
    ],
)
def test_the_librarys_own_tests_pass_under_recording(
    session: mttp.Session, name: str, check: Callable[[], None]
) -> None:
    """
    The library's tests pass with every environment recorded, as without, and no hook fails.
    """
    check()
    assert [] == list(mttp.read(session))

    with mttp.instrument():
        check()

    assert {name[:-3]} == {episode.env[:-3] for episode in mttp.read(session)}
    assert not session.stats.faults.keys() & {"integration_error", "step_after_end"}
