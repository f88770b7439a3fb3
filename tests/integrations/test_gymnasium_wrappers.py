"""The wrappers of `mttp.wrap`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import TransformReward
from integrations.specimen import PLAYS, by_env, only, told
from integrations.toys import Scripted, act_out

import mttp
from mttp.errors import InstrumentError


def test_wrapped_environments_are_recorded(session: mttp.Session) -> None:
    """
    As instrumented environments are.
    """
    env = mttp.wrap(Scripted(), policy="p")

    act_out(env)

    assert list(PLAYS) == [told(episode) for episode in mttp.read(session)]
    assert isinstance(env, gymnasium.Wrapper)


def test_wrapped_vectors_are_recorded(session: mttp.Session) -> None:
    """
    In a vector wrapper.
    """
    env = mttp.wrap(SyncVectorEnv([Scripted] * 2))

    env.reset(seed=1)
    for action in (1, 0, 1):
        env.step(np.array([action] * 2))
    env.close()

    assert isinstance(env, VectorWrapper)
    assert [[PLAYS[0]]] * 2 == by_env(session)


def test_wrapping_twice_changes_nothing(session: mttp.Session) -> None:
    """
    A wrapped environment is returned unchanged; with other wrappers in between, it is recorded once.
    """
    env = mttp.wrap(Scripted())
    same = mttp.wrap(env)
    outer = mttp.wrap(TransformReward(same, lambda reward: 10 * reward))

    act_out(outer, PLAYS[:1])

    assert same is env
    assert [5.0, -12.5, 1.0] == [step.reward for step in only(session).steps]


def test_wrapping_with_other_options_adds_a_layer(session: mttp.Session) -> None:
    """
    The outer layer's options apply.
    """
    env = mttp.wrap(mttp.wrap(Scripted(), policy="inner"), policy="outer")

    act_out(env, PLAYS[:1])

    assert ("outer", PLAYS[0]) == (only(session).policy, told(only(session)))


def test_a_wrapped_environment_can_be_instrumented(session: mttp.Session) -> None:
    """
    Its steps are recorded once.
    """
    env = mttp.wrap(Scripted(), policy="wrapped")
    mttp.instrument(env, policy="instrumented")

    act_out(env, PLAYS[:1])

    assert ("instrumented", PLAYS[0]) == (only(session).policy, told(only(session)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_records_by_itself(session: mttp.Session, copied: Any) -> None:
    """
    With the same options, and without the original's open episode.
    """
    env = mttp.wrap(Scripted(), policy="p")
    env.reset()
    env.step(1)

    other = copied(env)
    env.close()
    act_out(other, PLAYS[1:])

    first, second = mttp.read(session).episodes
    assert ("p", "closed", 1) == (first.policy, first.stop_reason, first.length)
    assert ("p", 2) == (second.policy, second.length)


def test_a_copy_of_a_wrapped_vector_records_by_itself(session: mttp.Session) -> None:
    """
    If the vector can be copied.
    """
    env = mttp.wrap(SyncVectorEnv([Scripted]))
    env.reset()
    env.step(np.array([1]))

    other = copy.deepcopy(env)
    env.close()
    other.step(np.array([0]))
    other.reset()
    other.step(np.array([0]))
    other.close()

    assert [1, 1] == [episode.length for episode in mttp.read(session)]


def test_gymnasiums_own_checks_pass(session: mttp.Session) -> None:
    """
    Determinism, signatures and results of an instrumented environment are what Gymnasium expects.
    """
    env = gymnasium.make("FrozenLake-v1").unwrapped
    mttp.instrument(env)

    check_env(env, skip_render_check=True)

    assert {} == dict(session.stats.faults)


@pytest.mark.parametrize("route", [mttp.instrument, mttp.wrap])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": 1}, "no option 'policies'; the options are observations, actions, max_bytes"),
        ({"max_bytes": -1}, "max_bytes=-1 is not a non-negative integer"),
        ({"max_bytes": True}, "max_bytes=True is not a non-negative integer"),
        ({"metadata": ["a"]}, r"metadata=\['a'\] is not a mapping"),
    ],
)
def test_wrong_options_are_refused(
    session: mttp.Session, route: Any, options: dict[str, Any], message: str
) -> None:
    """
    By `instrument` and by `wrap`.
    """
    with pytest.raises(InstrumentError, match=message):
        route(Scripted(), **options)


@pytest.mark.parametrize("route", [mttp.instrument, mttp.wrap])
def test_other_things_of_gymnasium_are_refused(session: mttp.Session, route: Any) -> None:
    """
    For example a space.
    """
    with pytest.raises(InstrumentError, match=r"gymnasium\.spaces\.discrete\.Discrete is neither"):
        route(gymnasium.spaces.Discrete(2))
