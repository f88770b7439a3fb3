"""The integration with PettingZoo, with the library where it is installed, else with a stand-in."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import mttp
from mttp.errors import InstrumentError
from mttp.model import Agent

FAKES = str(Path(__file__).parent / "fakes")
OURS = ("pettingzoo", "mttp.integrations.pettingzoo", "integrations.contests")


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    """Make the stand-in importable where the library is not installed, and forget it afterwards."""
    sys.path.append(FAKES)
    yield
    sys.path.remove(FAKES)
    if str(sys.modules["pettingzoo"].__file__).startswith(FAKES):
        for name in [name for name in sys.modules if name.startswith(OURS)]:
            del sys.modules[name]


@pytest.fixture
def race() -> Any:
    """Return a parallel environment."""
    from integrations.contests import Race

    return Race()


@pytest.fixture
def auction() -> Any:
    """Return an environment of turns."""
    from integrations.contests import Auction

    return Auction()


def run(env: Any, seed: int | None = 7) -> list[Any]:
    """Run a parallel environment to its end, and return what it returned."""
    returned = [env.reset(seed=seed)]
    while env.agents:
        returned.append(env.step({agent: index for index, agent in enumerate(env.agents)}))
    return returned


def bid(env: Any, bids: tuple[int, ...] = (4, 2, 1, 8)) -> list[Any]:
    """Run an environment of turns to its end, and return what each agent saw and got."""
    env.reset(seed=7)
    returned, left = [], list(bids)
    for agent in env.agent_iter():
        seen, reward, terminated, truncated, _ = env.last()
        returned.append((agent, seen["turn"].tolist(), reward))
        env.step(None if terminated or truncated else left.pop(0))
    return returned


def facts(agent: Agent) -> tuple[Any, ...]:
    """Return an agent's id, return, length and flags."""
    return agent.id, agent.return_, agent.length, agent.terminated, agent.truncated


def rows(episode: mttp.Episode) -> list[tuple[Any, ...]]:
    """Return the steps of an episode."""
    return [(step.agent, step.index, step.action, step.reward) for step in episode.steps]


def test_a_parallel_environment_is_one_episode_with_its_agents(session: mttp.Session, race: Any) -> None:
    """
    Steps of one call share an index; each agent has its rewards, components, flags and last observation.
    """
    mttp.instrument(race)

    run(race)

    episode = mttp.read(session).episodes[0]
    assert ("race_v3", "3", 7, "completed") == (
        episode.env,
        episode.env_version,
        episode.seed,
        episode.status,
    )
    assert (False, True, 3, None) == (
        episode.terminated,
        episode.truncated,
        episode.length,
        episode.return_,
    )
    assert [("hare", 1.5, 2, False, True), ("tortoise", 5.0, 3, True, False)] == [
        facts(agent) for agent in episode.agents
    ]
    assert [
        ("hare", 0, 0, 0.5),
        ("tortoise", 0, 1, 1.5),
        ("hare", 1, 0, 1.0),
        ("tortoise", 1, 1, 2.0),
        ("tortoise", 2, 0, 1.5),
    ] == rows(episode)
    assert [[0, 0], [0, 1], [1, 0], [1, 1], [2, 1]] == [step.observation.tolist() for step in episode.steps]
    assert {"hare": [2, 0], "tortoise": [3, 0]} == {
        name: value.tolist() for name, value in episode.final_observation.items()
    }
    assert {"hare", "tortoise"} == set(episode.env_spaces["action"]["spaces"])


def test_turns_are_steps_whose_rewards_arrive_at_the_next_turn(session: mttp.Session, auction: Any) -> None:
    """
    An agent's reward is what `last` returns at its next turn, with what others' actions added.
    """
    mttp.instrument(auction)

    returned = bid(auction)

    episode = mttp.read(session).episodes[0]
    assert [("ann", 3.0), ("bob", 1.5), ("ann", -3.0), ("bob", 8.0)] == [
        (agent, reward) for agent, _, reward in returned[2:]
    ]
    assert [("ann", 0, 4, 3.0), ("bob", 0, 2, 1.5), ("ann", 1, 1, -3.0), ("bob", 1, 8, 8.0)] == rows(episode)
    assert [[0], [1], [2], [3]] == [step.observation["turn"].tolist() for step in episode.steps]
    assert [("ann", 0.0, 2, True, False), ("bob", 9.5, 2, True, False)] == [
        facts(agent) for agent in episode.agents
    ]
    assert ("completed", True, False) == (episode.status, episode.terminated, episode.truncated)
    assert [4] == episode.final_observation["ann"]["turn"].tolist()
    assert () == episode.faults


def test_a_loop_may_stop_before_the_last_turns(session: mttp.Session, auction: Any) -> None:
    """
    Where each agent has ended, a reset ends the episode as finished, with the rewards; else as aborted.
    """
    mttp.instrument(auction)

    for bids in ((4, 2, 1, 8), (4, 2)):
        auction.reset()
        for each in bids:
            auction.step(each)
    auction.close()

    finished, aborted = mttp.read(session)
    assert [("ann", 0.0, 2, True, False), ("bob", 9.5, 2, True, False)] == [
        facts(agent) for agent in finished.agents
    ]
    assert ("completed", True) == (finished.status, finished.terminated)
    assert ("aborted", "closed", None) == (aborted.status, aborted.stop_reason, aborted.terminated)
    assert [("ann", 0, 4, 3.0), ("bob", 0, 2, 2.0)] == rows(aborted)


def test_a_conversion_is_recorded_once(session: mttp.Session, auction: Any) -> None:
    """
    Of several instrumented layers the outermost records.
    """
    from pettingzoo.utils.conversions import aec_to_parallel_wrapper

    mttp.instrument(auction)
    env = aec_to_parallel_wrapper(auction)
    mttp.instrument(env)

    run(env)

    (episode,) = mttp.read(session)
    assert ("aec_to_parallel_wrapper",) == episode.env_wrappers
    assert [("ann", 0, 0, -0.5), ("bob", 0, 1, 1.0), ("ann", 1, 0, -0.5), ("bob", 1, 1, 1.0)] == rows(episode)


@pytest.mark.parametrize("kind", ["race", "auction"])
def test_results_are_those_without_recording(
    session: mttp.Session, kind: str, request: pytest.FixtureRequest
) -> None:
    """
    The environment returns the same values in place, wrapped, and after detaching.
    """
    env, loop = request.getfixturevalue(kind), run if kind == "race" else bid
    expected = repr(loop(env))

    wrapped = repr(loop(mttp.wrap(copy.deepcopy(env))))
    with mttp.instrument(env):
        inside = repr(loop(env))
    afterwards = repr(loop(env))

    assert [expected] * 3 == [wrapped, inside, afterwards]
    assert 2 == len(list(mttp.read(session)))
    assert not {"step", "reset", "observe", "close"} & vars(env).keys()


@pytest.mark.parametrize("kind", ["race", "auction"])
def test_an_error_of_the_environment_ends_the_episode(
    session: mttp.Session, kind: str, request: pytest.FixtureRequest
) -> None:
    """
    The error reaches the caller, and the episode has the status error.
    """
    env = mttp.wrap(request.getfixturevalue(kind))
    env.reset()

    with pytest.raises(ValueError, match=r"the hare sleeps|a bid without cover"):
        env.step({"hare": 9, "tortoise": 1} if kind == "race" else 9)

    (episode,) = mttp.read(session)
    assert ("error", "ValueError") == (episode.status, episode.error_type)


@pytest.mark.parametrize("kind", ["race", "auction"])
def test_an_error_of_a_hook_harms_nothing(
    session: mttp.Session, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The environment returns the same values, and the fault is counted.
    """
    from mttp.integrations.gymnasium.agent_episodes import AgentEpisodes

    env, loop = request.getfixturevalue(kind), run if kind == "race" else bid
    expected = repr(loop(env))
    for name in ("begin", "observe", "start_step", "finish_step", "end", "abort"):
        monkeypatch.setattr(AgentEpisodes, name, lambda *_, **__: 1 / 0)

    with mttp.instrument(env):
        actual = repr(loop(env))

    assert expected == actual
    assert {"integration_error"} == session.stats.faults.keys()


def test_every_environment_is_recorded(session: mttp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without a target, environments of `make` and of the usual wrappers are recorded, each once.
    """
    import pettingzoo
    from integrations.contests import Auction, Race
    from pettingzoo.utils.conversions import aec_to_parallel_wrapper
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper

    from mttp.integrations.pettingzoo import attach_all

    monkeypatch.setattr(pettingzoo, "make", lambda _, id: id(), raising=False)  # older versions have none
    with attach_all(policy="mine") as handle:
        assert {True} == set(handle.status().values())
        run(pettingzoo.make("parallel", Race))
        bid(OrderEnforcingWrapper(Auction()))
        run(aec_to_parallel_wrapper(OrderEnforcingWrapper(Auction())))
        kept = OrderEnforcingWrapper(Auction())
    bid(kept)
    bid(OrderEnforcingWrapper(Auction()))

    recorded = [(episode.env, episode.policy) for episode in mttp.read(session)]
    assert [("race_v3", "mine"), ("auction_v1", "mine"), ("auction_v1", "mine")] == recorded
    assert {False} == set(handle.status().values())


def test_a_renamed_seam_is_named(session: mttp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A `make` that this version of the library lacks is False in the status.
    """
    import pettingzoo

    from mttp.integrations.pettingzoo import attach_all

    monkeypatch.delattr(pettingzoo, "make", raising=False)

    with attach_all() as handle:
        missing = [name for name, holds in handle.status().items() if not holds]

    assert ["pettingzoo.make"] == missing


def test_options_and_copies(session: mttp.Session, race: Any) -> None:
    """
    Options leave values out; a pickled wrapper records its own episodes.
    """
    env = mttp.wrap(race, observations=False, actions=False, task="t")
    assert env is mttp.wrap(env)

    run(pickle.loads(pickle.dumps(env)))

    (episode,) = mttp.read(session)
    assert ("t", None, None) == (episode.task, episode.steps[0].observation, episode.final_observation)
    assert [None] * 5 == [step.action for step in episode.steps]


def test_a_gymnasium_environment_inside_is_not_recorded(session: mttp.Session) -> None:
    """
    The environments that a recorded one steps belong to it.
    """
    from integrations.contests import Race

    class Nested(Race):
        def step(self, actions: dict[str, Any]) -> Any:
            self.inner.step(0)
            return super().step(actions)

    env = Nested()
    env.inner = mttp.wrap(gymnasium.make("CartPole-v1"))
    env.inner.reset(seed=1)
    mttp.instrument(env)

    run(env)

    assert ["race_v3"] == [episode.env for episode in mttp.read(session)]


def test_values_that_are_not_finite_are_errors(session: mttp.Session, race: Any) -> None:
    """
    A reward of NaN has the status error, and is never zero.
    """
    mttp.instrument(race)
    race.reset()

    race.step({"hare": 0, "tortoise": 1})
    step = race.step
    race.round = np.nan
    step({"hare": 0, "tortoise": 1})

    (episode,) = mttp.read(session)
    assert [0.5, 1.5, None, None] == [step.reward for step in episode.steps]


def test_another_object_of_the_library_is_refused(session: mttp.Session) -> None:
    """
    The message names the two kinds of environments.
    """
    from integrations.contests import Race

    from mttp.integrations.pettingzoo import attach, wrap

    for call in (attach, wrap):
        with pytest.raises(InstrumentError, match=r"is neither a pettingzoo.ParallelEnv nor"):
            call(Race)
