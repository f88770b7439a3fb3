"""All environments that `gymnasium.make` and `gymnasium.make_vec` return."""

from __future__ import annotations

import gc
import pickle
import weakref
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import pytest
from gymnasium.envs import registration
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from integrations.specimen import PLAYS, started, told
from integrations.toys import Scripted, act_out

import mttp
from mttp.integrations import gymnasium as integration

SCRIPTED = "mttp-tests/Scripted-v0"

original = gymnasium.make


@pytest.fixture(autouse=True)
def _registered() -> Any:
    entry_point = f"{Scripted.__module__}:{Scripted.__name__}"
    gymnasium.register(SCRIPTED, entry_point=entry_point, disable_env_checker=True, order_enforce=False)
    yield
    del gymnasium.registry[SCRIPTED]


def of_gymnasium(handle: Any) -> list[bool]:
    """Return the status of Gymnasium's patches."""
    return [held for label, held in handle.status().items() if label.startswith("gymnasium.")]


def test_every_environment_that_is_made_is_recorded(session: mttp.Session) -> None:
    """
    After one call, each `gymnasium.make` returns a recorded environment.
    """
    mttp.instrument(policy="p")

    for make in (gymnasium.make, registration.make, gymnasium.envs.make):
        act_out(make(SCRIPTED), PLAYS[:1])

    assert [(PLAYS[0], "p")] * 3 == [(told(episode), episode.policy) for episode in mttp.read(session)]


def test_recorded_environments_keep_class_spec_and_layers(session: mttp.Session) -> None:
    """
    They equal those of an environment made without recording.
    """
    bare = gymnasium.make("CartPole-v1")
    mttp.instrument()

    env = gymnasium.make("CartPole-v1")

    assert (type(bare), type(bare.unwrapped), bare.spec) == (type(env), type(env.unwrapped), env.spec)


def test_detaching_puts_everything_back(session: mttp.Session) -> None:
    """
    `make` and `make_vec` are the originals again, and the environments made in the meantime stop recording.
    """
    handle = mttp.instrument()
    env = gymnasium.make(SCRIPTED)
    assert all(of_gymnasium(handle))
    assert "gymnasium.make" in handle.status()

    act_out(env, PLAYS[:1])
    handle.detach()
    act_out(env, PLAYS[1:])
    act_out(gymnasium.make(SCRIPTED), PLAYS[:1])

    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(session)]
    assert gymnasium.make is original is registration.make is gymnasium.envs.make
    assert not any(handle.status().values())


def test_instrumenting_everything_again(session: mttp.Session) -> None:
    """
    It returns the same handle, and new options apply to environments made from then on.
    """
    handle = mttp.instrument(policy="first")
    env = gymnasium.make(SCRIPTED)
    same = mttp.instrument(policy="second") is handle is mttp.instrument()

    act_out(env, PLAYS[:1])
    act_out(gymnasium.make(SCRIPTED), PLAYS[:1])

    assert same
    assert ["first", "second"] == [episode.policy for episode in mttp.read(session)]


def test_instrumenting_after_detaching(session: mttp.Session) -> None:
    """
    It returns a new handle.
    """
    mttp.instrument(policy="first").detach()

    handle = mttp.instrument()
    act_out(gymnasium.make(SCRIPTED), PLAYS[:1])

    assert [None] == [episode.policy for episode in mttp.read(session)]
    assert all(of_gymnasium(handle))


def test_an_environment_that_can_not_be_recorded_is_made_all_the_same(session: mttp.Session) -> None:
    """
    `make` returns it, and a fault is counted.
    """

    class Computed(Scripted):
        @property
        def step(self) -> Any:
            return super().step

    gymnasium.register("mttp-tests/Computed-v0", entry_point=Computed, order_enforce=False)
    mttp.instrument()

    env = gymnasium.make("mttp-tests/Computed-v0", disable_env_checker=True)
    act_out(env, PLAYS[:1])

    assert isinstance(env, Computed)
    assert {"integration_error": 1} == dict(session.stats.faults)
    del gymnasium.registry["mttp-tests/Computed-v0"]


def test_errors_of_the_makers_are_the_callers(session: mttp.Session) -> None:
    """
    They propagate, and later vectors are recorded.
    """
    mttp.instrument()

    with pytest.raises(gymnasium.error.NameNotFound):
        gymnasium.make("NoSuchGame-v0")
    with pytest.raises(gymnasium.error.NameNotFound):
        gymnasium.make_vec("NoSuchGame-v0")
    act_out(gymnasium.make(SCRIPTED), PLAYS[:1])

    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(session)]


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_vectors_are_recorded_as_a_whole(tmp_path: Path, mode: str) -> None:
    """
    The vector is recorded, and the environments in it are not.
    """
    options: dict[str, Any] = {"vector_kwargs": {"context": "fork"}} if mode == "async" else {}
    with mttp.configure(transport=f"file://{tmp_path}/runs/"):
        mttp.instrument()
        vector = gymnasium.make_vec("CartPole-v1", 2, mode, **options)
        vector.reset(seed=1)
        for _ in range(5):
            vector.step(np.array([0, 1]))
        vector.close()

    found = sorted(mttp.read(tmp_path / "runs"), key=lambda episode: episode.env_index or 0)
    assert [(0, 5), (1, 5)] == [(episode.env_index, episode.length) for episode in found]


def test_environments_of_a_vector_built_by_class_are_recorded(session: mttp.Session) -> None:
    """
    `gymnasium.make` returned them, so that they record.
    """
    mttp.instrument()
    vector = SyncVectorEnv([lambda: gymnasium.make(SCRIPTED)] * 2)

    vector.reset()
    for action in (1, 0, 1):
        vector.step(np.array([action] * 2))
    vector.close()

    assert [(PLAYS[0], None)] * 2 == [(told(episode), episode.env_index) for episode in mttp.read(session)]


def test_a_vector_built_by_class_takes_over_when_it_is_instrumented(session: mttp.Session) -> None:
    """
    The vector records, and the environments in it do not.
    """
    mttp.instrument(policy="inner")
    vector = mttp.wrap(SyncVectorEnv([lambda: gymnasium.make(SCRIPTED)] * 2), policy="outer")

    vector.reset()
    for action in (1, 0, 1):
        vector.step(np.array([action] * 2))
    vector.close()

    found = [(told(episode), episode.policy, episode.env_index) for episode in started(session)]
    assert [(PLAYS[0], "outer", 0), (PLAYS[0], "outer", 1)] == found


def _workers(tmp_path: Path, outer: str | None) -> list[tuple[str | None, int | None, int]]:
    """
    Return policy, index and length of the episodes of a vector of worker processes created from its class.
    """
    with mttp.configure(transport=f"file://{tmp_path}/runs/"):
        mttp.instrument(policy="worker")
        vector: Any = AsyncVectorEnv([lambda: gymnasium.make(SCRIPTED)] * 2, context="fork")
        handle = None
        if outer == "instrument":
            handle = mttp.instrument(vector, policy="parent")
        elif outer == "wrap":
            vector = mttp.wrap(vector, policy="parent")
        vector.reset()
        for action in (1, 0, 1):
            vector.step(np.array([action] * 2))
        if handle is not None:
            handle.detach()
            vector.reset()
            vector.step(np.array([0, 0]))
        vector.close()
    found = [(episode.policy, episode.env_index, episode.length) for episode in mttp.read(tmp_path / "runs")]
    return sorted(found, key=lambda item: (item[2], item[1] or 0), reverse=True)


def test_worker_processes_record(tmp_path: Path) -> None:
    """
    Sessions survive a fork: environments in workers have episodes of the same run.
    """
    found = _workers(tmp_path, None)

    assert [("worker", None, 3)] * 2 == found


def test_worker_processes_do_not_record_while_the_vector_does(tmp_path: Path) -> None:
    """
    They record again when it is detached.
    """
    found = _workers(tmp_path, "instrument")

    assert [("parent", 1, 3), ("parent", 0, 3), ("worker", None, 1), ("worker", None, 1)] == found


def test_worker_processes_do_not_record_under_a_recording_wrapper(tmp_path: Path) -> None:
    """
    As with a vector recorded in place.
    """
    found = _workers(tmp_path, "wrap")

    assert [("parent", 1, 3), ("parent", 0, 3)] == found


def test_makers_can_be_pickled(session: mttp.Session) -> None:
    """
    A partial of `gymnasium.make` can be sent to other processes.
    """
    mttp.instrument()

    make = pickle.loads(pickle.dumps(partial(gymnasium.make, SCRIPTED)))
    act_out(make(), PLAYS[:1])

    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(session)]


def test_nothing_is_kept_alive(session: mttp.Session) -> None:
    """
    The garbage collector frees environments that the user has dropped.
    """
    handle = mttp.instrument()
    env = gymnasium.make(SCRIPTED)
    act_out(env)
    gone = weakref.ref(env)

    del env
    gc.collect()

    assert gone() is None
    assert all(of_gymnasium(handle))


def test_nothing_of_an_environment_is_held_once_it_is_detached(session: mttp.Session) -> None:
    """
    It is freed with its last reference, without the garbage collector.
    """
    gc.disable()
    try:
        env = Scripted()
        handle = mttp.instrument(env)
        act_out(env)
        handle.detach()
        gone = weakref.ref(env)
        del env, handle

        assert gone() is None
    finally:
        gc.enable()


def test_wrapped_environments_round_trip_by_their_spec(session: mttp.Session) -> None:
    """
    `env.spec` makes the same stack again, with the recording wrapper and its options.
    """
    env = mttp.wrap(TimeLimit(gymnasium.make(SCRIPTED), 2), policy="p", max_bytes=100)

    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    again.reset()
    again.step(1)
    again.step(0)

    (episode,) = mttp.read(session)
    assert type(again) is type(env) is integration.RecordEpisodes
    assert ("p", ("TimeLimit",), True) == (episode.policy, episode.env_wrappers, episode.truncated)
    assert env.spec == again.spec


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_wrapper_s_class_that_is_patched_is_called(
    session: mttp.Session, is_library: bool, is_first: bool
) -> None:
    """
    The outermost wrapper's `step` is looked up at each call, whether it was patched before or after.
    """
    if is_library:
        mttp.instrument()
    env = gymnasium.make(SCRIPTED, max_episode_steps=9)
    assert isinstance(env, TimeLimit)
    if is_first and not is_library:
        mttp.instrument(env)
    with patch.object(TimeLimit, "step", return_value=(np.zeros(4), 7.0, True, False, {})) as patched:
        handle = mttp.instrument(env)
        env.reset()
        assert 7.0 == env.step(0)[1]
        assert 1 == patched.call_count
    env.reset()
    env.step(0)
    handle.detach()

    assert "step" not in vars(env)
    assert 7.0 == mttp.read(session).episodes[0].steps[0].reward


def test_a_vector_s_class_that_is_patched_is_called(session: mttp.Session) -> None:
    """
    As for a single environment.
    """
    with mttp.instrument(), patch.object(SyncVectorEnv, "close") as patched:
        vector = gymnasium.make_vec(SCRIPTED, num_envs=2, vectorization_mode="sync")
        vector.reset()
        vector.step(np.zeros(2, int))
        vector.close()

    assert 1 == patched.call_count
    assert ["aborted"] * 2 == [episode.status for episode in mttp.read(session)]


def test_a_restored_patch_of_a_detached_handle(session: mttp.Session) -> None:
    """
    It does not count as instrumented, so that the environment can be instrumented again.
    """
    env = gymnasium.make(SCRIPTED)
    handle = mttp.instrument(env)
    with patch.object(env, "step"):
        handle.detach()

    mttp.instrument(env)
    act_out(env, PLAYS[:1])

    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(session)]


def test_a_vector_entry_point_s_own_seed_is_recorded_whole(session: mttp.Session) -> None:
    """
    A vector that resets without a seed draws one of 128 bits, which is in the metadata as text.
    """
    with mttp.instrument():
        vector = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
        vector.reset()
        drawn = vector.unwrapped.np_random_seed
        vector.step(np.zeros(2, int))
        vector.close()

    assert drawn >= 2**63
    assert [str(drawn)] * 2 == [episode.metadata["vector_seed"] for episode in mttp.read(session)]
    assert {} == dict(session.stats.faults)
