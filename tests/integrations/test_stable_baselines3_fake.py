"""Stable-Baselines3's integration with a stand-in for the library, which always runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import told

pytest.importorskip("gymnasium")

TESTS = Path(__file__).parents[1]
BEGINNING = f"""
    import json, sys
    sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "integrations" / "fakes")!r}]
    import mttp
    import numpy as np
    from integrations.specimen import PLAYS, started, told
    from integrations.toys import Scripted
    from stable_baselines3.common.base_class import BaseAlgorithm

    class Vector:
        '''One scripted environment, as the library's vectors show it.'''

        num_envs = 1

        def __init__(self):
            self.envs = [Scripted()]
            self.observation_space, self.action_space = Scripted.observation_space, Scripted.action_space

        @property
        def unwrapped(self):
            return self

        def reset(self):
            return self.envs[0].reset()[0][None]

        def step(self, actions):
            seen, reward, terminated, truncated, info = self.envs[0].step(actions[0])
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                info["terminal_observation"] = seen
                seen, _ = self.envs[0].reset()
            return seen[None], np.array([reward]), np.array([terminated or truncated]), [info]

    def model(kind=BaseAlgorithm):
        vector = Vector()
        env = vector.envs[0]
        return kind(vector, lambda: np.array([env.plays[env.index].turns[env.at].action]), n_steps=5)
"""


def test_the_shared_plays_read_back() -> None:
    """
    Each step has its value estimate, log probability, advantage and return target.
    """
    said = told(
        BEGINNING
        + """
    with mttp.configure("memory://") as session:
        with mttp.instrument():
            model().learn(2)
    episodes = started(session)
    thought = [
        [step.value_estimate, step.logprob, step.advantage, step.return_target] for step in episodes[1].steps
    ]
    updates = [
        [update.loss, update.policy_version_after, update.consumed] for update in mttp.read(session).updates
    ]
    run = mttp.read(session).runs[0]
    print(json.dumps([
        [told(episode) for episode in episodes] == [*PLAYS, *PLAYS], thought, updates,
        [run.algorithm, run.policy_parameters, run.config["gamma"]],
    ]))
    """
    )

    is_told, thought, updates, run = said
    assert is_told
    assert [[3.5, -3.25, 1.0, 2.0], [4.5, -4.25, 3.0, 4.0]] == thought
    assert [[0.5, "1", 2], [0.5, "2", 2]] == updates
    assert ["basealgorithm", 3, 0.9] == run


@pytest.mark.parametrize("how", ["spans", "packed", "auto"])
def test_each_episode_has_its_policy(how: str) -> None:
    """
    Whether its steps are spans or columns.
    """
    said = told(
        BEGINNING
        + f"""
    with mttp.configure("memory://", steps={how!r}) as session:
        with mttp.instrument():
            model().learn(2)
    print(json.dumps([
        [episode.policy_version_start, episode.policy_version_end, episode.policy_update_index]
        for episode in started(session)
    ]))
    """
    )

    assert [["0", "0", None], ["1", "1", 0]] == [said[0], said[-1]]


def test_evaluations_in_workers_have_their_split(tmp_path: Path) -> None:
    """
    Workers that record are told by the parent, where the evaluation during a training begins.
    """
    said = told(
        BEGINNING
        + f"""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    def make():
        env = Scripted()
        mttp.instrument(env)
        return env

    def evaluate_policy(vector):
        play_all(vector)

    def play_all(vector):
        for play in PLAYS:
            vector.reset()
            for turn in play.turns:
                vector.step(turn.action)

    path = {str(tmp_path)!r}
    with mttp.configure(f"file://{{path}}/"), mttp.instrument():
        vector = SubprocVecEnv(make)
        evaluate_policy(vector)
        model().learn(2)
        evaluate_policy(vector)
        play_all(vector)
        vector.close()
    episodes = mttp.read(path).episodes
    print(json.dumps([len(PLAYS), [one.split for one in episodes if one.policy_version_start is None]]))
    """
    )

    plays, splits = said
    assert [None] * plays + ["eval"] * plays + [None] * plays == splits


def test_a_library_without_a_patched_method() -> None:
    """
    One warning names the tested versions, the training continues, and `status` shows what is missing.
    """
    said = told(
        BEGINNING
        + """
    class Renamed(BaseAlgorithm):
        def learn(self, rollouts):
            self._last_obs = self.env.reset()
            return self

    del BaseAlgorithm._init_callback
    one = model(Renamed)
    with mttp.configure("memory://") as session:
        handle = mttp.instrument(one)
        one.learn(1)
        status = handle.status()
        handle.detach()
    print(json.dumps(status))
    """,
        warned="has no BaseAlgorithm._init_callback",
    )

    assert not said["BaseAlgorithm._init_callback"]


def test_a_class_that_is_patched_is_called() -> None:
    """
    Before or after the library is instrumented; after that patch is removed, the earlier method is called
    again.
    """
    said = told(
        BEGINNING
        + """
    from unittest.mock import patch

    calls = []
    original = vars(BaseAlgorithm)["learn"]
    installed = vars(BaseAlgorithm)["_init_callback"]
    with mttp.configure("memory://") as session:
        for is_first in (True, False):
            handle = mttp.instrument() if is_first else None
            with patch.object(BaseAlgorithm, "learn", return_value=7) as learn:
                handle = handle or mttp.instrument()
                calls += [model().learn(1), learn.call_count]
            with patch.object(BaseAlgorithm, "_init_callback", autospec=True, side_effect=installed) as init:
                model().learn(1)
                calls.append(init.call_count)
            model().learn(1)
            handle.detach()
    print(json.dumps([
        calls,
        original is vars(BaseAlgorithm)["learn"],
        installed is vars(BaseAlgorithm)["_init_callback"],
    ]))
    """
    )

    assert [[7, 1, 1] * 2, True, True] == said


@pytest.mark.parametrize("how", ["spans", "packed", "auto"])
def test_a_vector_without_infos_is_recorded(how: str) -> None:
    """
    An empty list in place of an info per environment gives the same steps as empty infos.
    """
    said = told(
        BEGINNING
        + f"""
    class Silent(Vector):
        def step(self, actions):
            return *super().step(actions)[:3], []

    def played(kind):
        vector = kind()
        env = vector.envs[0]
        with mttp.configure("memory://", steps={how!r}) as session:
            with mttp.instrument():
                BaseAlgorithm(
                    vector, lambda: np.array([env.plays[env.index].turns[env.at].action]), n_steps=5
                ).learn(1)
        rows = [[step.reward, step.terminated] for episode in started(session) for step in episode.steps]
        return rows, dict(session.stats.faults)

    (rows, faults), (usual, _) = played(Silent), played(Vector)
    print(json.dumps([[reward for reward, _ in rows] == [reward for reward, _ in usual], len(rows), faults]))
    """
    )

    assert [True, 5, {}] == said


@pytest.mark.parametrize("how", ["spans", "packed", "auto"])
def test_components_in_infos_are_attributes_of_steps(how: str) -> None:
    """
    Each step has its components, and no span below it.
    """
    said = told(
        BEGINNING
        + f"""
    class Paying(Vector):
        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, [dict(info, reward_speed=0.5) for info in infos]

    vector = Paying()
    env = vector.envs[0]
    with mttp.configure("memory://", steps={how!r}) as session:
        with mttp.instrument():
            BaseAlgorithm(
                vector, lambda: np.array([env.plays[env.index].turns[env.at].action]), n_steps=5
            ).learn(1)
    steps = [step for episode in started(session) for step in episode.steps]
    print(json.dumps([
        [step.rewards[-1].components for step in steps],
        [step.reward for step in steps] == [step.rewards[-1].value for step in steps],
        [span.name for span in session.records() if span.name == "reward"],
    ]))
    """
    )

    assert [[{"speed": 0.5}] * 5, True, []] == said
