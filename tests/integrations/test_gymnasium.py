"""A single Gymnasium environment, recorded in place."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import Autoreset, TimeLimit, TransformReward
from integrations.specimen import PLAYS, Play, Turn, only, told
from integrations.toys import DictEnv, Nested, Scripted, act_out

import mttp
from mttp.integrations.gymnasium.randomness import digest
from mttp.recording import configuration
from mttp.testing import OtlpReceiver


def test_plays_are_recorded(session: mttp.Session) -> None:
    """
    Each environment episode is one recorded episode, and reads back turn by turn.
    """
    env = Scripted()
    mttp.instrument(env)

    act_out(env, seed=7)

    assert list(PLAYS) == [told(episode) for episode in mttp.read(session)]
    assert {} == dict(session.stats.faults)


def test_terminated_and_truncated_are_kept_apart(session: mttp.Session) -> None:
    """
    The end of a task and a time limit are different facts.
    """
    env = Scripted()
    mttp.instrument(env)

    act_out(env)

    ended, cut = mttp.read(session).episodes
    assert (True, False, "completed") == (ended.terminated, ended.truncated, ended.status)
    assert (False, True, "completed") == (cut.terminated, cut.truncated, cut.status)


def test_the_environment_s_facts(session: mttp.Session) -> None:
    """
    Id, version, arguments, wrappers, spaces and seed are those of `gymnasium.make` and `reset`.
    """
    env = TimeLimit(gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=9), 5)
    mttp.instrument(env, policy="p1", group="g1", task="t1", metadata={"lab": 3})

    env.reset(seed=11)
    env.step(0)
    env.close()

    episode = only(session)
    assert ("FrozenLake-v1", "1", 11, None) == (
        episode.env,
        episode.env_version,
        episode.seed,
        episode.env_rng_sha256,
    )
    assert {"map_name": "4x4", "is_slippery": False, "max_episode_steps": 9} == episode.env_kwargs
    assert ("TimeLimit", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker") == episode.env_wrappers
    assert {"type": "Discrete", "n": 16, "start": 0} == episode.env_spaces["observation"]
    assert ("p1", "g1", "t1", {"lab": 3}) == (episode.policy, episode.group, episode.task, episode.metadata)


def test_an_environment_without_spec_goes_by_its_class(session: mttp.Session) -> None:
    """
    An environment created from its class has no id, version or arguments.
    """
    env = Scripted()
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    episode = only(session)
    assert ("Scripted", None, {}, ()) == (
        episode.env,
        episode.env_version,
        episode.env_kwargs,
        episode.env_wrappers,
    )


def test_discrete_values_are_plain_integers(session: mttp.Session) -> None:
    """
    Values of Discrete spaces are integers, whichever integer type the environment and the policy use.
    """
    env = gymnasium.make("Taxi-v3" if gymnasium.__version__ < "1.2" else "Taxi-v4")
    mttp.instrument(env)

    env.reset(seed=1)
    env.step(np.int64(2))
    env.step(np.int32(3))
    env.close()

    steps = only(session).steps
    assert [int, int, int, int] == [
        type(value) for step in steps for value in (step.observation, step.action)
    ]
    assert [2, 3] == [step.action for step in steps]


@pytest.mark.parametrize("steps", ["spans", "packed", "auto"])
@pytest.mark.parametrize("to", ["memory", "file", "collector"])
@pytest.mark.parametrize(
    "make", [DictEnv, lambda: gymnasium.make("Blackjack-v1"), Nested], ids=["dict", "tuple", "nested"]
)
def test_dicts_and_tuples_read_back_as_they_were(make: Any, to: str, steps: str, tmp_path: Path) -> None:
    """
    Nested ones too, with the dtypes and shapes of their arrays; values of Discrete spaces are integers.
    """
    configuration.forget()
    shown, acted = [], []
    with OtlpReceiver() as receiver:
        address = {
            "memory": "memory://",
            "file": f"file://{tmp_path}/a.jsonl",
            "collector": receiver.http_address,
        }
        with mttp.configure(mttp.Route(address[to], content=True), steps=steps) as session:
            env = mttp.wrap(make())
            env.action_space.seed(3)
            observation, _ = env.reset(seed=3)
            over = False
            while not over and len(shown) < 5:
                shown.append(copy.deepcopy(observation))
                acted.append(env.action_space.sample())
                observation, _, *ends, _ = env.step(copy.deepcopy(acted[-1]))
                over = any(ends)
            env.close()
        found = only(receiver if to == "collector" else session if to == "memory" else tmp_path / "a.jsonl")
        found_faults = dict(session.stats.faults)

    assert [_form(value) for value in (*shown, observation)] == [
        _form(value) for value in (*(step.observation for step in found.steps), found.final_observation)
    ]
    assert [_form(action) for action in acted] == [_form(step.action) for step in found.steps]
    assert {} == found_faults


def _form(value: Any) -> Any:
    """Return a value with the types and shapes of its arrays, for comparisons."""
    if isinstance(value, dict):
        return {name: _form(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return ("tuple", *map(_form, value))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def test_a_dict_without_arrays_stays_plain_data(session: mttp.Session) -> None:
    """
    It needs no structure; a Sequence is a list.
    """

    class Texts(Scripted):
        observation_space = spaces.Dict(
            {"words": spaces.Sequence(spaces.Discrete(9)), "n": spaces.Discrete(3)}
        )

        def _shown(self) -> Any:
            return {"words": [1, np.int64(2)], "n": 2}

    env = Texts()
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    assert {"words": [1, 2], "n": 2} == only(session).steps[0].observation
    assert {} == dict(session.stats.faults)


def test_values_that_are_not_of_the_space_are_kept_as_they_are(session: mttp.Session) -> None:
    """
    Observations are recorded as returned, whatever the space says.
    """

    class Wrong(DictEnv):
        def _shown(self) -> Any:
            return {"something": np.arange(2, dtype=np.int16)}

    env = Wrong()
    mttp.instrument(env)

    env.reset(seed=1)
    env.step((1, np.zeros(1, np.float32)))
    env.close()

    step = only(session).steps[0]
    assert ("int16", [0, 1]) == (step.observation["something"].dtype, step.observation["something"].tolist())
    assert {} == dict(session.stats.faults)


def test_a_structure_that_can_not_be_kept_is_named(session: mttp.Session) -> None:
    """
    The arrays are kept as lists, and the step has a fault.
    """

    class Odd(DictEnv):
        def _shown(self) -> Any:
            return {"seen": np.zeros(2, np.float32), "cells": {1}}

    env = Odd()
    mttp.instrument(env)

    env.reset(seed=1)
    env.step((1, np.zeros(1, np.float32)))
    env.close()

    step = only(session).steps[0]
    assert {"seen": [0.0, 0.0], "cells": [1]} == step.observation
    assert ("structure_not_kept: it has a set; arrays are kept as lists",) == step.faults


def test_large_values_leave_their_dtype_and_shape(session: mttp.Session) -> None:
    """
    Above `max_bytes` only dtype and shape are kept, and the step's omissions say so.
    """

    class Pictures(Scripted):
        observation_space = spaces.Box(0, 255, (100, 100, 3), np.uint8)

        def _shown(self) -> Any:
            return np.full((100, 100, 3), self.at, np.uint8)

    env = Pictures()
    mttp.instrument(env, max_bytes=29_999)

    act_out(env, PLAYS[:1])

    episode = only(session)
    assert [None, None, None] == [step.observation for step in episode.steps]
    assert ["30000 bytes, the limit is 29999"] == [
        what.partition(": ")[2] for what in episode.steps[0].omissions
    ]
    assert "30000 bytes" in episode.omissions[0]


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_large_values_of_several_parts_leave_their_dtype_and_shape(steps: str) -> None:
    """
    For a Dict, they are those of the one array that it is recorded as.
    """

    class Pictures(Scripted):
        observation_space = spaces.Dict(
            {"left": spaces.Box(0, 255, (100, 100), np.uint8), "right": spaces.Box(0, 255, (9,), np.uint8)}
        )

        def _shown(self) -> Any:
            return {"left": np.zeros((100, 100), np.uint8), "right": np.zeros(9, np.uint8)}

    configuration.forget()
    with mttp.configure(transport="memory://", steps=steps) as session:
        env = Pictures()
        mttp.instrument(env, max_bytes=10_000)
        act_out(env, PLAYS[:1])

    episode = only(session)
    assert [None, None, None] == [step.observation for step in episode.steps]
    assert ["10009 bytes, the limit is 10000"] == [
        what.partition(": ")[2] for what in episode.steps[0].omissions
    ]
    assert {} == dict(session.stats.faults)
    assert {} == mttp.check(session).ids


def test_observations_and_actions_can_be_left_out(session: mttp.Session) -> None:
    """
    Rewards and ends are still recorded.
    """
    env = Scripted()
    mttp.instrument(env, observations=False, actions=False)

    act_out(env, PLAYS[:1])

    episode = only(session)
    assert [(None, None)] * 3 == [(step.observation, step.action) for step in episode.steps]
    assert (None, PLAYS[0].total) == (episode.final_observation, episode.return_)


def test_observations_are_copied(session: mttp.Session) -> None:
    """
    A later change of the array does not change the recorded observation.
    """
    env = Scripted()
    mttp.instrument(env)

    shown, _ = env.reset()
    shown[:] = 99
    shown, *_ = env.step(1)
    shown[:] = 99
    env.step(0)
    env.close()

    assert [[0.0, 0.0], [0.0, 1.0]] == [step.observation.tolist() for step in only(session).steps]


def test_a_step_lasts_from_its_observation_to_its_reward(session: mttp.Session) -> None:
    """
    Steps follow each other without a gap, and the episode lasts from the reset to the last reward.
    """
    env = Scripted()
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    episode = only(session)
    first, second, third = episode.steps
    assert (first.end_time, second.end_time) == (second.start_time, third.start_time)
    assert episode.start_time is not None
    assert first.start_time is not None
    assert episode.start_time <= first.start_time
    assert third.end_time == episode.end_time


def test_resets_alone_leave_nothing(session: mttp.Session) -> None:
    """
    An episode starts with its first step.
    """
    env = Scripted()
    mttp.instrument(env)

    env.reset()
    env.reset()
    env.close()

    assert [] == mttp.read(session).episodes


def test_a_reset_in_mid_episode_aborts_it(session: mttp.Session) -> None:
    """
    The aborted episode has a stop reason and its last observation.
    """
    env = Scripted()
    mttp.instrument(env)

    env.reset()
    env.step(1)
    env.reset()

    episode = only(session)
    assert ("aborted", "reset", None, 1) == (
        episode.status,
        episode.stop_reason,
        episode.terminated or None,
        episode.length,
    )
    assert [0.0, 1.0] == episode.final_observation.tolist()


def test_closing_in_mid_episode_aborts_it(session: mttp.Session) -> None:
    """
    With the stop reason `closed`.
    """
    env = Scripted()
    mttp.instrument(env)

    env.reset()
    env.step(1)
    env.close()

    episode = only(session)
    assert ("aborted", "closed") == (episode.status, episode.stop_reason)


def test_the_step_is_current_in_the_environment_and_only_there(session: mttp.Session) -> None:
    """
    Code inside `step` finds the current step and episode; between calls there is none.
    """
    found = []

    class Looking(Scripted):
        def step(self, action: Any) -> Any:
            step = mttp.current_step()
            step.metric("looked", 1)
            found.append((step.index, mttp.current_episode().env))
            return super().step(action)

    env = Looking()
    mttp.instrument(env)

    act_out(env, PLAYS[:1])
    found.append((bool(mttp.current_step()), bool(mttp.current_episode())))

    assert [(0, "Looking"), (1, "Looking"), (2, "Looking"), (False, False)] == found
    assert [{"looked": 1.0}] * 3 == [step.metrics for step in only(session).steps]


def test_reward_components_are_taken_from_the_info(session: mttp.Session) -> None:
    """
    The numbers in `reward_…` and `rewards` are the reward's components.
    """
    infos = (
        {"reward_forward": np.float64(0.75), "reward_ctrl": -0.25, "reward_x": "no", "reward_y": 10**400},
        {"rewards": {"alive": 1, "fell": -2.25}},
        {"reward": 3},
    )
    env = Scripted(infos=infos)
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    first, second, third = only(session).steps
    assert {"forward": 0.75, "ctrl": -0.25} == first.rewards[0].components
    assert {"alive": 1.0, "fell": -2.25} == second.rewards[0].components
    assert () == third.rewards
    assert [0.5, -1.25, 0.1] == [step.reward for step in (first, second, third)]
    assert (first.end_time, first.end_time) == (first.rewards[0].start_time, first.rewards[0].end_time)
    assert {} == dict(session.stats.faults)


@pytest.mark.parametrize(
    ("info", "outcome"),
    [
        ({"is_success": True}, "success"),
        ({"success": np.bool_(False)}, "failure"),
        ({"is_success": np.float32(1.0)}, "success"),
        ({"success": "maybe"}, "unknown"),
        ({"success": 0.5}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_outcome_is_what_the_last_info_says(
    session: mttp.Session, info: dict[str, Any], outcome: str
) -> None:
    """
    The outcome is read from the info, and never guessed from the reward.
    """
    env = Scripted(infos=({"is_success": False}, {}, info))
    mttp.instrument(env)

    act_out(env, PLAYS[:1])

    assert outcome == only(session).outcome


def test_a_seed_that_reset_drew_by_itself_is_known(session: mttp.Session) -> None:
    """
    The seed with which the first reset creates the generator reproduces the episode.
    """
    env = gymnasium.make("CartPole-v1")
    mttp.instrument(env)

    shown, _ = env.reset()
    env.step(0)
    env.close()

    again, _ = gymnasium.make("CartPole-v1").reset(seed=told(only(session)).seed)
    assert shown.tolist() == again.tolist()


def test_an_unknown_seed_leaves_a_digest(session: mttp.Session) -> None:
    """
    The second reset records a digest of its generator's state; equal states have equal digests.
    """
    digests = []
    for _ in range(2):
        env = gymnasium.make("CartPole-v1")
        mttp.instrument(env)
        env.reset(seed=5)
        digests.append(str(digest(env.unwrapped)))
        env.reset()
        env.step(0)
        env.close()

    first, second = mttp.read(session).episodes
    assert (None, None) == (first.seed, second.seed)
    assert digests == [first.env_rng_sha256, second.env_rng_sha256]
    assert digests[0] == digests[1]


def test_recording_creates_no_generator(session: mttp.Session) -> None:
    """
    An environment without a generator has none afterwards.
    """
    env = Scripted()
    mttp.instrument(env)

    act_out(env)

    assert None is env._np_random
    assert [(None, None)] * 2 == [(episode.seed, episode.env_rng_sha256) for episode in mttp.read(session)]


def test_the_autoreset_wrapper(session: mttp.Session) -> None:
    """
    The call after an end is a reset: its action has no effect, and no step is recorded for it.
    """
    env = Autoreset(Scripted())
    mttp.instrument(env)

    env.reset(seed=1)
    for action in (1, 0, 1, 77, 0, 0, 77, 1):
        env.step(action)
    env.close()

    first, second, third = mttp.read(session).episodes
    assert list(PLAYS) == [told(first), told(second)]
    assert (1, "aborted") == (third.length, third.status)
    assert {} == dict(session.stats.faults)


def test_an_autoreset_wrapper_around_the_recorded_layer(session: mttp.Session) -> None:
    """
    The recorded environment gets real resets.
    """
    inner = Scripted()
    mttp.instrument(inner)
    env = Autoreset(inner)

    env.reset()
    for action in (1, 0, 1, 77, 0, 0):
        env.step(action)

    assert list(PLAYS) == [told(episode) for episode in mttp.read(session)]


def test_the_layer_decides_what_is_recorded(session: mttp.Session) -> None:
    """
    A wrapper inside the recorded layer is part of the environment, one around it is not.
    """
    inner = TransformReward(Scripted(), lambda reward: 2 * reward)
    mttp.instrument(inner)
    env = TransformReward(inner, lambda reward: 100 * reward)

    env.reset()
    _, paid, *_ = env.step(1)
    env.close()

    assert (100.0, 1.0) == (paid, only(session).steps[0].reward)


def test_the_outermost_recorded_layer_records(session: mttp.Session) -> None:
    """
    Each step is recorded once, however many layers are instrumented, in any order.
    """
    inner = Scripted()
    middle = TransformReward(inner, lambda reward: 10 * reward)
    outer = TransformReward(middle, lambda reward: 10 * reward)
    for layer in (middle, inner, outer):
        mttp.instrument(layer)
    env = mttp.wrap(TransformReward(outer, lambda reward: 10 * reward))

    act_out(env, PLAYS[:1])

    assert [500.0, -1250.0, 100.0] == [step.reward for step in only(session).steps]


def test_detaching_the_outer_layer_lets_the_inner_one_record(session: mttp.Session) -> None:
    """
    From its next reset on.
    """
    inner = Scripted()
    outer = TransformReward(inner, lambda reward: 10 * reward)
    mttp.instrument(inner)
    handle = mttp.instrument(outer)

    act_out(outer, PLAYS[:1])
    handle.detach()
    act_out(outer, PLAYS[1:])

    assert [[5.0, -12.5, 1.0], [0.0, 2.0]] == [
        [step.reward for step in episode.steps] for episode in mttp.read(session)
    ]


def test_an_environment_inside_an_environment(session: mttp.Session) -> None:
    """
    A simulator that an environment steps, recorded too, has its own episodes.
    """

    class Dreaming(Scripted):
        def __init__(self) -> None:
            super().__init__()
            self.dream = Scripted()
            mttp.instrument(self.dream, policy="dreamer")

        def step(self, action: Any) -> Any:
            if self.at == 0:
                act_out(self.dream, PLAYS[:1])
            return super().step(action)

    env = Dreaming()
    mttp.instrument(env, policy="awake")

    act_out(env, PLAYS[:1])

    assert {"awake": 3, "dreamer": 3} == {str(e.policy): len(e.steps) for e in mttp.read(session)}


def test_environments_that_call_themselves_are_recorded_once(session: mttp.Session) -> None:
    """
    A `reset` that steps, and a `step` that calls itself, are one call each.
    """

    class Restless(Scripted):
        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            shown, *_ = self.step(0)
            self.close()
            return shown, {}

        def step(self, action: Any) -> Any:
            return super().step(action) if action == 0 else self.step(0)

    env = Restless()
    mttp.instrument(env)

    env.reset()
    env.step(1)
    env.step(1)

    episode = only(session)
    assert [1, 1] == [step.action for step in episode.steps]
    assert "completed" == episode.status


def test_two_environments_at_once(session: mttp.Session) -> None:
    """
    Interleaved environments have separate episodes.
    """
    one, other = Scripted(), Scripted(PLAYS[1:])
    mttp.instrument(one, policy="one")
    mttp.instrument(other, policy="other")

    one.reset()
    other.reset()
    one.step(1)
    other.step(0)
    one.step(0)
    other.step(0)
    one.step(1)

    found = {episode.policy: told(episode) for episode in mttp.read(session)}
    assert {"one": PLAYS[0], "other": PLAYS[1]} == found


def test_environments_in_threads(session: mttp.Session) -> None:
    """
    Each thread's environment has complete episodes of its own.
    """

    def work(name: str) -> None:
        env = Scripted()
        mttp.instrument(env, policy=name)
        for _ in range(20):
            act_out(env)

    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for name in ("p0", "p1", "p2", "p3"):
        mine = [told(episode) for episode in mttp.read(session) if episode.policy == name]
        assert list(PLAYS) * 20 == mine


def test_the_object_stays_what_it_is(session: mttp.Session) -> None:
    """
    Class, attributes, spec and layers stay, and detaching leaves no trace.
    """
    env = gymnasium.make("CartPole-v1")
    before = dict(vars(env))

    handle = mttp.instrument(env)

    assert TimeLimit is type(env)
    assert (gymnasium.make("CartPole-v1").spec, "step") == (env.spec, env.step.__name__)
    assert {"reset": True, "step": True, "close": True} == handle.status()
    handle.detach()
    handle.detach()
    assert {"reset": False, "step": False, "close": False} == handle.status()
    assert before.keys() == vars(env).keys()


def test_instrumenting_again_gives_the_same_handle(session: mttp.Session) -> None:
    """
    There is one recorder per layer, and the latest options apply.
    """
    env = Scripted()

    handle = mttp.instrument(env, policy="first")
    same = mttp.instrument(env, policy="second") is handle is mttp.instrument(env)
    act_out(env, PLAYS[:1])

    assert same
    assert ("second", 3) == (only(session).policy, only(session).length)


def test_a_block_ends_the_recording(session: mttp.Session) -> None:
    """
    The handle is a context manager.
    """
    env = Scripted()

    with mttp.instrument(env):
        act_out(env, PLAYS[:1])
    act_out(env, PLAYS[1:])

    assert [PLAYS[0]] == [told(episode) for episode in mttp.read(session)]


def test_detaching_in_mid_episode_aborts_it(session: mttp.Session) -> None:
    """
    The environment keeps working.
    """
    env = Scripted()
    handle = mttp.instrument(env)

    env.reset()
    env.step(1)
    handle.detach()
    _, paid, *_ = env.step(0)

    episode = only(session)
    assert ("aborted", "detached", 1, -1.25) == (episode.status, episode.stop_reason, episode.length, paid)


def test_detaching_within_a_step(session: mttp.Session) -> None:
    """
    The step is recorded, and is not current any more.
    """

    class Leaving(Scripted):
        def step(self, action: Any) -> Any:
            handle.detach()
            return super().step(action)

    env = Leaving()
    handle = mttp.instrument(env)

    env.reset()
    env.step(1)

    assert ("aborted", "detached", 1) == (
        only(session).status,
        only(session).stop_reason,
        only(session).length,
    )
    assert (False, False) == (bool(mttp.current_step()), bool(mttp.current_episode()))


def test_a_later_patch_survives(session: mttp.Session) -> None:
    """
    Detaching keeps another library's later patch, and our wrapper in it only calls the original.
    """
    env = Scripted()
    handle = mttp.instrument(env)
    calls = []
    ours = env.step

    def theirs(action: Any) -> Any:
        calls.append(action)
        return ours(action)

    env.step = theirs
    act_out(env, PLAYS[:1])
    status = handle.status()
    handle.detach()
    act_out(env, PLAYS[1:])

    assert {"reset": True, "step": False, "close": True} == status
    assert env.step is theirs
    assert ([PLAYS[0]], [1, 0, 1, 0, 0]) == ([told(episode) for episode in mttp.read(session)], calls)


def test_an_earlier_patch_is_restored(session: mttp.Session) -> None:
    """
    An instance's own method is recorded, and restored by detaching.
    """
    env = Scripted()
    original = env.step

    def theirs(action: Any) -> Any:
        return original(action)

    env.step = theirs
    with mttp.instrument(env):
        act_out(env, PLAYS[:1])

    assert env.step is theirs
    assert PLAYS[0] == told(only(session))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_is_not_recorded(session: mttp.Session, copied: Any) -> None:
    """
    Copying and pickling work, and the copy is not recorded.
    """
    env = Scripted()
    mttp.instrument(env)
    env.reset()
    env.step(1)

    other = copied(env)
    _, paid, *_ = other.step(0)
    env.step(0)
    env.step(1)

    assert (-1.25, PLAYS[0]) == (paid, told(only(session)))
    assert (2, 3) == (other.at, env.at)


def test_a_copy_of_a_stack_is_not_recorded(session: mttp.Session) -> None:
    """
    The layers of the copy refer to each other, not to the original.
    """
    inner = Scripted()
    mttp.instrument(inner)
    env = TransformReward(inner, float)
    mttp.instrument(env)
    env.reset()

    other = copy.deepcopy(env)
    other.step(1)
    env.close()

    assert [] == mttp.read(session).episodes
    assert (1, 0) == (other.unwrapped.at, inner.at)


def test_spaces_are_described(session: mttp.Session) -> None:
    """
    Every space of Gymnasium becomes JSON data.
    """
    from mttp.integrations.gymnasium.spaces import describe

    space = spaces.Dict(
        {
            "box": spaces.Box(-1, 1, (2, 2), np.float32),
            "image": spaces.Box(np.zeros((9, 9)), np.arange(81.0).reshape(9, 9), (9, 9), np.float64),
            "few": spaces.Box(np.array([0, 1]), np.array([2, 3]), (2,), np.int64),
            "discrete": spaces.Discrete(3, start=1),
            "multi": spaces.MultiDiscrete([2, 3]),
            "binary": spaces.MultiBinary(4),
            "text": spaces.Text(5),
            "tuple": spaces.Tuple((spaces.Discrete(2),)),
            "sequence": spaces.Sequence(spaces.Discrete(2)),
            "graph": spaces.Graph(spaces.Discrete(2), None),
            "one": spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
        }
    )

    found = describe(space)

    assert found == json.loads(json.dumps(found))
    discrete = {"type": "Discrete", "n": 2, "start": 0}
    assert {"type": "Dict"} | found == found
    assert found["spaces"] == {
        "box": {"type": "Box", "shape": [2, 2], "dtype": "float32", "low": -1.0, "high": 1.0},
        "image": {"type": "Box", "shape": [9, 9], "dtype": "float64", "low": 0.0, "high": 80.0},
        "few": {"type": "Box", "shape": [2], "dtype": "int64", "low": [0, 1], "high": [2, 3]},
        "discrete": {"type": "Discrete", "n": 3, "start": 1},
        "multi": {"type": "MultiDiscrete", "shape": [2], "dtype": "int64", "nvec": [2, 3], "start": [0, 0]},
        "binary": {"type": "MultiBinary", "shape": [4], "dtype": "int8"},
        "text": {"type": "Text", "min_length": 1, "max_length": 5},
        "tuple": {"type": "Tuple", "spaces": [discrete]},
        "sequence": {"type": "Sequence", "feature_space": discrete},
        "graph": {"type": "Graph", "node_space": discrete, "edge_space": None},
        "one": {"type": "OneOf", "spaces": [discrete, {"type": "Discrete", "n": 3, "start": 0}]},
    }


def test_an_unknown_space_is_described_by_its_repr() -> None:
    """
    With the name of its class.
    """
    from mttp.integrations.gymnasium.spaces import describe

    class Strange(spaces.Space[Any]):
        def __repr__(self) -> str:
            return "Strange()"

    assert {"type": "Strange", "repr": "Strange()"} == describe(Strange())


def test_long_plays_lose_nothing(session: mttp.Session) -> None:
    """
    A thousand steps are a thousand recorded steps, numbered from 0.
    """
    turns = tuple(Turn([0.0, float(n)], n % 2, n / 7) for n in range(1000))
    play = Play((*turns, Turn([9.0, 9.0], 0, 1.0, terminated=True)), [8.0, 8.0])
    env = Scripted((play,))
    mttp.instrument(env)

    act_out(env, (play,))

    episode = only(session)
    assert play == told(episode)
    assert list(range(1001)) == [step.index for step in episode.steps]


def test_evaluations_during_a_training_have_their_split(session: mttp.Session) -> None:
    """
    Those that a library's `evaluate_policy` begins, after an episode of the training.
    """

    def evaluate_policy(env: gymnasium.Env[Any, Any]) -> None:
        act_out(env)

    trained, evaluated = Scripted(), Scripted()
    mttp.instrument(trained)
    mttp.instrument(evaluated)

    evaluate_policy(evaluated)
    act_out(trained)
    evaluate_policy(evaluated)

    plays = len(PLAYS)
    assert [None] * 2 * plays + ["eval"] * plays == [one.split for one in mttp.read(session).episodes]
    assert {"counted": 2 * plays, "evaluation": plays} == mttp.summarize(session).reasons.counts()
