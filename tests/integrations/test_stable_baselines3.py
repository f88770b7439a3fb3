"""Stable-Baselines3: the recording of a training equals the library's own numbers."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

import gymnasium  # noqa: E402 - comes with it
from gymnasium import spaces  # noqa: E402
from gymnasium.envs.classic_control import CartPoleEnv  # noqa: E402
from gymnasium.wrappers import TimeLimit  # noqa: E402
from integrations.specimen import PLAYS, plain, started  # noqa: E402
from integrations.toys import Scripted  # noqa: E402
from stable_baselines3 import A2C, DQN, PPO, SAC  # noqa: E402
from stable_baselines3.common.base_class import BaseAlgorithm  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecNormalize,
)

import mttp  # noqa: E402
from mttp.errors import InstrumentError  # noqa: E402
from mttp.integrations.stable_baselines3.recorder import ModelRecorder  # noqa: E402

PATCHES = [
    *("BaseAlgorithm._init_callback", "OnPolicyAlgorithm.learn", "OffPolicyAlgorithm.learn"),
    "SubprocVecEnv.reset",
]
ON_POLICY = {"PPO": (PPO, {"n_steps": 64, "batch_size": 32, "n_epochs": 2}), "A2C": (A2C, {"n_steps": 32})}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def small() -> dict[str, Any]:
    """Return the arguments of a small model, new each time, because the library changes them."""
    return {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 3}


class Buffers(BaseCallback):  # type: ignore[misc]  # a foreign class
    """A user's callback that keeps the contents of the rollout buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        names = ("rewards", "values", "log_probs", "advantages", "returns", "actions", "observations")
        self.rollouts.append({name: getattr(self.model.rollout_buffer, name).copy() for name in names})

    def column(self, name: str, env: int) -> list[Any]:
        """Return the buffers' column of one environment, over all rollouts."""
        return [plain(row) for rollout in self.rollouts for row in rollout[name][:, env]]


class Dicts(gymnasium.Env[Any, Any]):
    """Returns dicts, for four steps."""

    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self._shown(), {}

    def _shown(self) -> Any:
        return {"a": np.full(2, self.at / 4, np.float32), "b": self.at % 3}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self._shown(), 1.0, self.at == 4, False, {}


def cartpole(limit: int = 20) -> Any:
    """Return an environment with short episodes."""
    return Monitor(TimeLimit(gymnasium.make("CartPole-v1"), limit))


def in_env(session: mttp.Session, index: int) -> list[mttp.Episode]:
    """Return the episodes of one environment, in order."""
    return [episode for episode in started(session) if episode.env_index == index]


def steps(episodes: list[mttp.Episode]) -> list[mttp.Step]:
    """Return all steps of episodes, in order."""
    return [step for episode in episodes for step in episode.steps]


@pytest.mark.parametrize("name", ON_POLICY)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_on_policy_algorithm_s_numbers_are_its_buffer_s(
    session: mttp.Session, name: str, num_envs: int
) -> None:
    """
    Observations, actions, values, log probabilities, advantages and return targets, of every environment.
    """
    kind, arguments = ON_POLICY[name]
    model = kind("MlpPolicy", make_vec_env(cartpole, num_envs), **arguments, **small())
    buffers = Buffers()

    with mttp.instrument(model):
        model.learn(3 * num_envs * arguments["n_steps"], callback=buffers)

    for env in range(num_envs):
        found = steps(in_env(session, env))
        assert buffers.column("observations", env) == [plain(step.observation) for step in found]
        assert [int(action[0]) for action in buffers.column("actions", env)] == [
            step.action for step in found
        ]
        for column, field in (
            ("values", "value_estimate"),
            ("log_probs", "logprob"),
            ("advantages", "advantage"),
            ("returns", "return_target"),
        ):
            assert buffers.column(column, env) == [getattr(step, field) for step in found]
        trained = [step.reward if step.trained_reward is None else step.trained_reward for step in found]
        assert buffers.column("rewards", env) == trained


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (DQN, {"learning_starts": 20, "buffer_size": 500, "train_freq": 4}),
        (PPO, {"n_steps": 64, "batch_size": 32, "n_epochs": 1}),
    ],
)
def test_episodes_are_the_monitor_s(session: mttp.Session, kind: Any, arguments: Any) -> None:
    """
    Rewards, returns and lengths equal Monitor's; the last open episode is there too.
    """
    env = cartpole()
    model = kind("MlpPolicy", env, **arguments, **small())

    with mttp.instrument(model):
        model.learn(128)
    session.close()

    episodes = in_env(session, 0)
    whole = [episode for episode in episodes if episode.status == "completed"]
    assert env.get_episode_lengths() == [episode.length for episode in whole]
    assert env.get_episode_rewards() == [episode.return_ for episode in whole]
    assert {"aborted"} >= {episode.status for episode in episodes[len(whole) :]}
    assert 128 == sum(episode.length for episode in episodes)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (PPO, {"n_steps": 10, "batch_size": 10, "n_epochs": 1}),
        (A2C, {"n_steps": 10}),
        (DQN, {"learning_starts": 100}),
    ],
)
def test_the_shared_plays_read_back(session: mttp.Session, kind: Any, arguments: Any) -> None:
    """
    In each environment, with final observations and ends.
    """
    model = kind("MlpPolicy", make_vec_env(Scripted, 2), **arguments, **small())

    with mttp.instrument(model, policy="p"):
        model.learn(20)

    for env in range(2):
        for episode, play in zip(in_env(session, env)[:4], PLAYS * 2, strict=True):
            assert [turn.observation for turn in play.turns] == [
                plain(step.observation) for step in episode.steps
            ]
            assert [np.float32(turn.reward) for turn in play.turns] == [step.reward for step in episode.steps]
            assert play.last == plain(episode.final_observation)
            ends = (play.turns[-1].terminated, play.turns[-1].truncated)
            assert ends == (episode.terminated, episode.truncated)
            assert ("Scripted", "p") == (episode.env, episode.policy)


def test_a_bootstrapped_reward_is_the_trained_reward(session: mttp.Session) -> None:
    """
    After a time limit PPO adds the value of the final observation, and the step keeps the environment's
    reward.
    """
    model = PPO("MlpPolicy", cartpole(limit=5), n_steps=32, batch_size=32, n_epochs=1, **small())
    with mttp.instrument(model):
        model.learn(32)

    episodes = started(session)
    cut = [episode.steps[-1] for episode in episodes if episode.truncated]
    others = [step for step in steps(episodes) if not step.truncated]

    assert cut
    assert [1.0] * len(cut) == [step.reward for step in cut]
    assert all(step.trained_reward not in (None, 1.0) for step in cut)
    assert {None} == {step.trained_reward for step in others}


def test_a_normalized_reward_is_the_trained_reward(session: mttp.Session) -> None:
    """
    The reward is the environment's.
    """
    env = VecNormalize(make_vec_env(cartpole, 2))
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, **small())
    buffers = Buffers()
    with mttp.instrument(model):
        model.learn(64, callback=buffers)

    found = steps(in_env(session, 1))

    assert {1.0} == {step.reward for step in found}
    assert buffers.column("rewards", 1) == [step.trained_reward for step in found]
    assert buffers.column("observations", 1) == [plain(step.observation) for step in found]
    assert "VecNormalize" == started(session)[0].env_wrappers[0]


def test_a_continuous_action_is_the_one_that_was_taken(session: mttp.Session) -> None:
    """
    SAC's actions are those that the environment got, without value estimates or log probabilities.
    """
    env = Monitor(TimeLimit(gymnasium.make("Pendulum-v1"), 20))
    model = SAC("MlpPolicy", env, learning_starts=10, batch_size=8, **small())
    with mttp.instrument(model):
        model.learn(50)

    episodes = started(session)

    assert [20, 20, 10] == [episode.length for episode in episodes]
    assert env.get_episode_rewards() == pytest.approx([e.return_ for e in episodes[:2]], abs=1e-4)
    assert {(1,)} == {step.action.shape for step in steps(episodes)}
    assert {None} == {step.logprob for step in steps(episodes)}
    assert [True, True, False] == [episode.truncated for episode in episodes]


def test_dict_observations(session: mttp.Session) -> None:
    """
    They read back as mappings.
    """
    model = PPO("MultiInputPolicy", Dicts(), n_steps=8, batch_size=8, n_epochs=1, **small())
    with mttp.instrument(model):
        model.learn(8)

    first = started(session)[0]

    assert [{"a": [0.25, 0.25], "b": 1}, {"a": [1.0, 1.0], "b": 1}] == [
        plain(first.steps[1].observation),
        plain(first.final_observation),
    ]


def test_updates_are_what_the_library_logs(session: mttp.Session) -> None:
    """
    One per rollout, with that rollout's episodes; policy versions count gradient steps.
    """
    model = PPO("MlpPolicy", cartpole(), n_steps=64, batch_size=32, n_epochs=2, **small())
    with mttp.instrument(model):
        model.learn(128)
        logged = dict(model.logger.name_to_value)

    first, last = mttp.read(session).updates
    episodes = started(session)

    assert ("0", "2", "4") == (
        first.policy_version_before,
        first.policy_version_after,
        last.policy_version_after,
    )
    assert logged["train/loss"] == last.loss
    assert logged["train/approx_kl"] == last.kl
    assert -logged["train/entropy_loss"] == last.entropy
    assert logged["train/clip_fraction"] == last.clip_fraction
    assert logged["train/learning_rate"] == last.learning_rate
    assert logged["train/value_loss"] == last.value_loss
    assert 2.0 == last.metrics["gradient_steps"]
    assert (0,) == episodes[0].consumed_by
    assert (1,) == episodes[-1].consumed_by
    assert ("0", None, 0) == (
        episodes[0].policy_version_start,
        episodes[0].policy_update_index,
        episodes[-1].policy_update_index,
    )
    assert all(0 <= update.lag_min <= update.lag_max <= 1 for update in (first, last) if update.lag_max)


def test_an_off_policy_algorithm_s_updates_are_summed_up(session: mttp.Session) -> None:
    """
    An update is recorded after an episode's end, and counts the gradient steps since the last one.
    """
    model = DQN("MlpPolicy", cartpole(), learning_starts=16, train_freq=4, batch_size=8, **small())
    with mttp.instrument(model):
        model.learn(100)

    recording = mttp.read(session)

    assert model._n_updates == sum(update.metrics["gradient_steps"] for update in recording.updates)
    assert len(recording.updates) <= 1 + len(recording.episodes)
    assert [None] * len(recording.updates) == [update.consumed for update in recording.updates]
    assert all(update.loss is not None for update in recording.updates)


def test_a_run_knows_its_trainer(session: mttp.Session) -> None:
    """
    Algorithm, versions, hyperparameters, network and optimizer are recorded.
    """
    model = PPO("MlpPolicy", cartpole(), n_steps=32, batch_size=32, n_epochs=1, gamma=0.9, **small())
    with mttp.instrument(model):
        model.learn(32)
    session.close()

    (run,) = mttp.read(session).runs
    (episode, *_) = started(session)

    assert ("stable-baselines3", "ppo", 3, "Adam") == (run.trainer, run.algorithm, run.seed, run.optimizer)
    assert "ActorCriticPolicy(8)" == run.policy_architecture
    assert sum(item.numel() for item in model.policy.parameters()) == run.policy_parameters
    expected = {"gamma": 0.9, "n_steps": 32, "learning_rate": 0.0003, "clip_range": 0.2}
    assert expected == {name: run.config[name] for name in expected}
    assert {"net_arch": [8]} == run.config["policy_kwargs"]
    assert (0.9, 3, "CartPole-v1") == (episode.discount, episode.seed, episode.env)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (PPO, {"n_steps": 32, "batch_size": 16, "n_epochs": 2}),
        (A2C, {}),
        (DQN, {"learning_starts": 16, "batch_size": 8}),
        (SAC, {"learning_starts": 16, "batch_size": 8}),
    ],
)
def test_training_is_the_same_with_and_without(session: mttp.Session, kind: Any, arguments: Any) -> None:
    """
    The weights are bit for bit equal.
    """

    def trained() -> dict[str, Any]:
        env = gymnasium.make("Pendulum-v1" if kind is SAC else "CartPole-v1")
        model = kind("MlpPolicy", env, **arguments, **small())
        return dict(model.learn(96).policy.state_dict())

    bare = trained()
    with mttp.instrument():
        watched = trained()

    assert mttp.read(session).episodes
    assert bare.keys() == watched.keys()
    assert all(torch.equal(bare[name], watched[name]) for name in bare)


def test_an_episode_continues_over_several_calls(session: mttp.Session) -> None:
    """
    A call that resets the environments aborts it.
    """
    env = cartpole()
    model = PPO("MlpPolicy", env, n_steps=25, batch_size=25, n_epochs=1, **small())
    with mttp.instrument(model):
        model.learn(25)
        model.learn(25, reset_num_timesteps=False)
        monitored = [*env.get_episode_lengths()]
        model.learn(25)

    episodes = started(session)
    reset = [place for place, episode in enumerate(episodes) if episode.stop_reason == "reset"]

    assert [len(monitored)] == reset
    assert monitored == [episode.length for episode in episodes[: reset[0]]]


def test_an_environment_is_recorded_once(session: mttp.Session) -> None:
    """
    Where Gymnasium is recorded too, the trainer's environments are recorded by the trainer, others by
    Gymnasium.
    """
    with mttp.instrument():
        env = gymnasium.make("CartPole-v1")
        model = A2C("MlpPolicy", env, n_steps=16, **small())
        model.learn(32)
        env.reset(seed=1)
        env.step(0)
        env.close()

    episodes = started(session)

    assert 32 == sum(episode.length for episode in episodes[:-1])
    assert (None, 1, 1) == (episodes[-1].env_index, episodes[-1].length, episodes[-1].seed)


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_workers_record_nothing(tmp_path: Path, start_method: str) -> None:
    """
    The parent records a SubprocVecEnv's episodes once, with seeds and final observations.
    """
    with mttp.configure(f"file://{tmp_path}/runs/") as session, mttp.instrument():
        env = make_vec_env(
            "CartPole-v1", 2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": start_method}
        )
        model = A2C("MlpPolicy", env, n_steps=16, **small())
        model.learn(96)
        env.close()
        assert {} == dict(session.stats.faults)

    recording = mttp.read(tmp_path / "runs")
    episodes = sorted(recording.episodes, key=lambda episode: episode.index or 0)

    assert 96 == sum(episode.length for episode in episodes)
    assert {0, 1} == {episode.env_index for episode in episodes}
    assert [3, 4] == [episode.seed for episode in episodes[:2]]
    assert {"CartPole-v1"} == {episode.env for episode in episodes}
    ended = [episode for episode in episodes if episode.status == "completed"]
    assert all((abs(e.final_observation[[0, 2]]) > (2.4, 0.2095)).any() for e in ended if e.terminated)


@pytest.mark.parametrize("how", ["spans", "packed", "auto"])
def test_steps_are_spans_or_packed(how: str) -> None:
    """
    They read the same, with later facts; in memory they are spans by default.
    """
    with mttp.configure("memory://", steps=how) as session:
        model = PPO("MlpPolicy", cartpole(), n_steps=32, batch_size=32, n_epochs=1, **small())
        buffers = Buffers()
        with mttp.instrument(model):
            model.learn(64, callback=buffers)

    found = steps(started(session))

    assert buffers.column("advantages", 0) == [step.advantage for step in found]
    assert buffers.column("values", 0) == [step.value_estimate for step in found]
    assert (how != "packed") == all(step.span_id for step in found)


def test_parts_of_a_reward_are_its_components(session: mttp.Session) -> None:
    """
    Components are read from the info of each step.
    """
    infos = ({"reward_form": 0.25}, {})
    model = A2C("MlpPolicy", DummyVecEnv([lambda: Scripted(infos=infos)]), n_steps=5, **small())
    with mttp.instrument(model):
        model.learn(5)

    found = steps(started(session))

    assert [0.5, -1.25, np.float32(0.1), 0.0, 2.0] == [step.reward for step in found]
    components = [step.rewards[0].components if step.rewards else {} for step in found]
    assert [{"form": 0.25}, {}, {"form": 0.25}, {}, {"form": 0.25}] == components
    assert all(step.value_estimate is not None and step.advantage is not None for step in found)


def test_a_hook_that_raises_costs_only_the_recording(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The weights are the same; the fault is counted each time and logged once.
    """

    def trained() -> Any:
        model = PPO("MlpPolicy", cartpole(), n_steps=32, batch_size=32, n_epochs=1, **small())
        return model.learn(32).policy.state_dict()

    bare = trained()
    for name in ("training_start", "rollout_start", "step", "rollout_end", "training_end"):
        monkeypatch.setattr(ModelRecorder, f"on_{name}", _fails)
    with caplog.at_level(logging.WARNING, "mttp"), mttp.instrument():
        watched = trained()

    assert all(torch.equal(bare[name], watched[name]) for name in bare)
    assert {"integration_error": 36} == dict(session.stats.faults)
    assert 1 == sum("integration_error" in record.getMessage() for record in caplog.records)


def _fails(*_: Any, **__: Any) -> None:
    raise RuntimeError("broken")


def test_a_model_that_is_not_named_is_not_recorded(session: mttp.Session) -> None:
    """
    `instrument(model)` records that model only, until its handle is detached.
    """
    one = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    other = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    handle = mttp.instrument(one)
    assert PATCHES == [name for name, holds in handle.status().items() if holds]

    other.learn(16)
    assert [] == mttp.read(session).episodes
    one.learn(16)
    handle.detach()
    one.learn(16)

    assert 16 == sum(episode.length for episode in mttp.read(session))
    assert dict.fromkeys(PATCHES, False) == handle.status()


def test_everything_is_put_back(session: mttp.Session) -> None:
    """
    After detaching, the library is as before; a model gets no attributes that would be saved with it.
    """
    places = [(BaseAlgorithm, "_init_callback"), (OnPolicyAlgorithm, "learn"), (OffPolicyAlgorithm, "learn")]
    before = [vars(kind)[name] for kind, name in places]
    one = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    other = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    other.learn(8)
    names = set(vars(other))

    handles = [mttp.instrument(one), mttp.instrument(other), mttp.instrument(one)]
    one.learn(8)
    assert handles[0] is handles[2]
    assert names == set(vars(one))
    for handle in handles:
        handle.detach()

    assert before == [vars(kind)[name] for kind, name in places]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_class_that_is_patched_is_called(session: mttp.Session, is_first: bool) -> None:
    """
    Before or after a model is instrumented; its training is recorded too.
    """
    one = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    handle = mttp.instrument(one) if is_first else None
    learn, begin = vars(OnPolicyAlgorithm)["learn"], vars(BaseAlgorithm)["_init_callback"]
    with patch.object(OnPolicyAlgorithm, "learn", autospec=True, side_effect=learn) as patched:
        handle = handle or mttp.instrument(one)
        one.learn(8)
        assert 1 == patched.call_count
    with patch.object(BaseAlgorithm, "_init_callback", autospec=True, side_effect=begin) as patched:
        one.learn(8)
        assert 1 == patched.call_count
    handle.detach()

    assert 8 <= sum(episode.length for episode in mttp.read(session))


class Silent(VecEnvWrapper):  # type: ignore[misc]  # untyped where it is not installed
    """Returns empty infos, and never ends."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        shown, paid, _, _ = self.venv.step_wait()
        return shown, paid, np.zeros(self.num_envs, bool), []


def test_a_vector_without_infos_is_recorded(session: mttp.Session) -> None:
    """
    Some vectors return an empty list, as in the library's own tests.
    """
    model = A2C("MlpPolicy", Silent(DummyVecEnv([cartpole, cartpole])), n_steps=8, **small())
    with mttp.instrument(model):
        model.learn(32)

    session.close()
    assert [16, 16] == [episode.length for episode in mttp.read(session)]
    assert {} == {kind: n for kind, n in session.stats.faults.items() if kind != "episode_never_ended"}


def test_handles_of_a_model_and_of_all_models_are_independent(session: mttp.Session) -> None:
    """
    In any order of detaching.
    """
    one = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    other = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    handle = mttp.instrument(one, policy="one")
    with mttp.instrument(policy="every"):
        one.learn(8)
        other.learn(8)
    one.learn(8)
    other.learn(8)
    handle.detach()
    one.learn(8)

    lengths = dict.fromkeys(("one", "every"), 0)
    for episode in mttp.read(session):
        lengths[episode.policy or ""] += episode.length
    assert {"one": 16, "every": 8} == lengths


def test_a_model_is_saved_while_it_is_recorded(session: mttp.Session, tmp_path: Path) -> None:
    """
    Also by a callback during a training; the loaded model is not recorded.
    """
    model = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    with mttp.instrument(model):
        model.learn(16)
        model.save(tmp_path / "model.zip")

    loaded = A2C.load(tmp_path / "model.zip", env=cartpole(), device="cpu")
    loaded.learn(8)

    assert 16 == sum(episode.length for episode in mttp.read(session))


def test_two_trainers_at_once(session: mttp.Session) -> None:
    """
    In two threads, with options of their own.
    """
    models = {name: A2C("MlpPolicy", cartpole(), n_steps=8, **small()) for name in ("one", "other")}
    for name, model in models.items():
        mttp.instrument(model, policy=name)
    threads = [threading.Thread(target=model.learn, args=(64,)) for model in models.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models.values():
        mttp.instrument(model).detach()

    recording = mttp.read(session)

    for name in models:
        assert 64 == sum(episode.length for episode in recording if episode.policy == name)
        assert 8 == sum(update.policy == name for update in recording.updates)


def test_a_subclass_is_recorded(session: mttp.Session) -> None:
    """
    Under its own name.
    """

    class Mine(A2C):  # type: ignore[misc]  # a foreign class
        def train(self) -> None:
            super().train()
            self.logger.record("train/own", 7.0)

    model = Mine("MlpPolicy", cartpole(), n_steps=8, **small())
    with mttp.instrument(model):
        model.learn(8)
    session.close()

    recording = mttp.read(session)

    assert ("mine", 7.0) == (recording.runs[0].algorithm, recording.updates[0].metrics["own"])


def test_a_training_that_raises_is_left_as_it_is(session: mttp.Session) -> None:
    """
    The user's exception propagates, and the open episode ends with the session.
    """

    class Stops(BaseCallback):  # type: ignore[misc]  # a foreign class
        def _on_step(self) -> bool:
            raise KeyError("mine")

    model = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    mttp.instrument(model)
    with pytest.raises(KeyError, match="mine"):
        model.learn(16, callback=Stops())
    session.close()

    (episode,) = mttp.read(session).episodes
    assert ("aborted", "training_ended", 1) == (episode.status, episode.stop_reason, episode.length)


def test_a_training_that_is_interrupted_is_over(session: mttp.Session) -> None:
    """
    Its last update is recorded, and Gymnasium records later episodes of its environment.
    """
    with mttp.instrument():
        env = gymnasium.make("CartPole-v1")
        model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, **small())
        with pytest.raises(KeyboardInterrupt):
            model.learn(32, callback=At(20, _interrupts))
        env.reset(seed=1)
        env.step(0)
        env.close()

    recording = mttp.read(session)
    assert [0, 1] == [update.index for update in recording.updates]
    assert (None, 1, "closed") == (
        started(session)[-1].env_index,
        started(session)[-1].length,
        started(session)[-1].stop_reason,
    )


def _interrupts() -> None:
    raise KeyboardInterrupt


def test_a_model_without_a_session_starts_one(tmp_path: Path) -> None:
    """
    On the default transport, with a log message.
    """
    model = A2C("MlpPolicy", cartpole(), n_steps=8, **small())
    mttp.instrument(model)
    model.learn(16)
    session = mttp.current_session()
    assert session is not None
    session.close()

    assert 16 == sum(episode.length for episode in mttp.read(tmp_path / "mttp-runs"))


def test_what_is_no_model_is_refused() -> None:
    """
    The message says to instrument the model.
    """
    with pytest.raises(InstrumentError, match="DummyVecEnv is not an algorithm of Stable-Baselines3"):
        mttp.instrument(DummyVecEnv([cartpole]))
    with pytest.raises(InstrumentError, match="cannot be wrapped"):
        mttp.wrap(A2C("MlpPolicy", cartpole(), **small()))


@pytest.mark.parametrize(
    ("example", "arguments"), [("ppo_sb3.py", ("--steps", "1024")), ("ppo_cleanrl.py", ("--updates", "2"))]
)
def test_the_examples_train_and_are_recorded(tmp_path: Path, example: str, arguments: Any) -> None:
    """
    Shortened examples; a reset of the vector is not recorded as a step.
    """
    script = Path(__file__).parents[2] / "examples" / example
    path = str(tmp_path / "run.jsonl")
    subprocess.run([sys.executable, script, "--out", path, *arguments], check=True, capture_output=True)

    recording = mttp.read(path)
    assert [] == recording.problems
    assert 900 < sum(episode.length for episode in recording) <= 1024
    assert recording.updates


def test_opentelemetry_s_command_records_an_unchanged_script(tmp_path: Path) -> None:
    """
    Each episode is there once, although Gymnasium is recorded too.
    """
    script = tmp_path / "train.py"
    script.write_text(
        "import gymnasium\nfrom stable_baselines3 import A2C\n"
        "A2C('MlpPolicy', gymnasium.make('CartPole-v1'), n_steps=16, device='cpu').learn(64)\n"
    )
    command = Path(sys.executable).with_name("opentelemetry-instrument")

    done = subprocess.run(
        [command, "--traces_exporter", "none", sys.executable, script],
        env={
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "MTTP_TRANSPORT": f"file://{tmp_path}/run.jsonl",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert 0 == done.returncode, done.stderr
    recording = mttp.read(tmp_path / "run.jsonl")
    assert ([], 64, 4) == (
        recording.problems,
        sum(episode.length for episode in recording),
        len(recording.updates),
    )


def upright(observation: Any) -> float:
    """Return a higher reward the less the pole leans."""
    return 1 - abs(float(observation[2])) / 0.42


def test_evaluations_in_workers_have_their_split(tmp_path: Path) -> None:
    """
    Forked workers of an evaluation record, and are told by the parent that it evaluates.
    """

    def limited() -> Any:
        return Monitor(gymnasium.make("CartPole-v1", max_episode_steps=20))

    with mttp.configure(f"file://{tmp_path}/runs/"), mttp.instrument():
        evaluated = SubprocVecEnv([limited, limited], start_method="fork")
        model = A2C("MlpPolicy", make_vec_env(cartpole, 1), n_steps=16, **small())
        model.learn(96)
        evaluate_policy(model, evaluated, n_eval_episodes=4)
        evaluated.close()

    ended = [one for one in mttp.read(tmp_path / "runs").episodes if one.status == "completed"]
    splits = {("DummyVecEnv" in one.env_wrappers, one.split) for one in ended}
    assert {(True, None), (False, "eval")} == splits


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_a_reward_spec_in_an_environment(session: mttp.Session, kind: Any) -> None:
    """
    The library learns from the spec's rewards, and they are recorded with components and identity.
    """
    component = {"name": "upright", "kind": "rubric", "use": upright, "range": [0, 1], "scope": "step"}
    spec = mttp.RewardSpec(
        name="balance", version="1.0.0", components=[component], combine="weighted_sum", on_invalid="floor"
    )
    env = kind([lambda: spec.for_gymnasium(cartpole(500))] * 2)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, **small())
    buffers = Buffers()
    mttp.instrument(model)

    model.learn(64, callback=buffers)
    env.close()

    episodes = in_env(session, 0)
    rewards = [step.rewards[0] for step in steps(episodes)]
    paid = np.array([reward.value for reward in rewards], np.float32)
    assert paid.tolist() == np.array(buffers.column("rewards", 0), np.float32)[: len(paid)].tolist()
    assert all(reward.components["upright"] == reward.value for reward in rewards)
    assert all(reward.spec == spec.identity for reward in rewards)
    assert {} == dict(session.stats.faults)


class Own(VecEnv):  # type: ignore[misc]  # a foreign class
    """A user's vector without access to its environments."""

    def __init__(self) -> None:
        super().__init__(2, spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
        self.at = 0

    def reset(self) -> Any:
        return np.zeros((2, 1), np.float32)

    def step_async(self, actions: Any) -> None:
        self.at += 1

    def step_wait(self) -> Any:
        over = self.at % 4 == 0
        infos = [{"terminal_observation": np.ones(1, np.float32)} if over else {} for _ in range(2)]
        return self.reset(), np.full(2, 0.5, np.float32), np.full(2, over), infos

    def close(self) -> None:
        """Close nothing."""

    def get_attr(self, attr_name: str, indices: Any = None) -> Any:
        if attr_name != "render_mode":  # which the library asks for itself
            raise AttributeError(attr_name)
        return [None, None]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> Any:
        return [False, False]


def test_a_vector_without_get_attr_is_recorded(session: mttp.Session) -> None:
    """
    The environment's name is its class, and each missing fact is counted.
    """
    model = PPO("MlpPolicy", Own(), n_steps=8, batch_size=16, n_epochs=1, **small())
    with mttp.instrument(model):
        model.learn(32)

    episodes = in_env(session, 1)
    assert [("Own", 4, 2.0, "completed")] * 4 == [
        (episode.env, episode.length, episode.return_, episode.status) for episode in episodes
    ]
    assert {"fact_unknown"} == set(session.stats.faults)


class Closed(CartPoleEnv):  # type: ignore[misc]  # a foreign class
    """Raises for every unknown attribute."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    @property
    def np_random_seed(self) -> Any:
        raise KeyError("np_random_seed")


def unsent() -> Any:
    """Return an environment with an argument that cannot be pickled."""
    if "Unsent-v0" not in gymnasium.registry:
        gymnasium.register("Unsent-v0", entry_point=lambda **_: CartPoleEnv(), max_episode_steps=9)
    return gymnasium.make("Unsent-v0", bonus=lambda: 1)


@pytest.mark.parametrize(("make", "env"), [(unsent, "Unsent-v0"), (lambda: TimeLimit(Closed(), 9), None)])
def test_reading_facts_does_not_end_a_worker(session: mttp.Session, make: Any, env: str | None) -> None:
    """
    A worker would exit when its environment raises or a result cannot be pickled.
    """
    vector = SubprocVecEnv([make, make], start_method="fork")
    model = PPO("MlpPolicy", vector, n_steps=8, batch_size=8, n_epochs=1, **small())
    with mttp.instrument(model):
        model.learn(32)
    vector.close()

    assert 32 == session.stats.steps
    assert {env or "SubprocVecEnv"} == {episode.env for episode in mttp.read(session)}
    assert {} == dict(session.stats.faults)


class At(BaseCallback):  # type: ignore[misc]  # a foreign class
    """A user's callback that calls a function at a step, and stops the training if it returns False."""

    def __init__(self, step: int, do: Any) -> None:
        super().__init__()
        self.step, self.do = step, do

    def _on_step(self) -> bool:
        return self.n_calls != self.step or self.do() is not False


def test_an_episode_continues_after_a_callback_stopped_the_training(session: mttp.Session) -> None:
    """
    The environment was not reset: the next call steps from the last observation that it acted on.
    """
    env = cartpole()
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, **small())
    buffers = Buffers()
    with mttp.instrument(model):
        model.learn(32, callback=At(5, lambda: False))
        model.learn(64, reset_num_timesteps=False, callback=buffers)

    episodes = started(session)
    assert env.get_episode_lengths() == [one.length for one in episodes if one.status == "completed"]
    assert buffers.column("observations", 0) == [plain(step.observation) for step in steps(episodes)[5:]]


@pytest.mark.parametrize(
    ("kind", "arguments"), [(PPO, {"n_steps": 8, "batch_size": 8}), (DQN, {"learning_starts": 500})]
)
def test_an_episode_that_had_begun_is_not_recorded(session: mttp.Session, kind: Any, arguments: Any) -> None:
    """
    An environment that is in an episode when its model is instrumented is recorded from its next episode on.
    """
    env = cartpole(6)
    model = kind("MlpPolicy", env, **arguments, **small())
    model.learn(8)
    with mttp.instrument(model):
        model.learn(16, reset_num_timesteps=False)

    lengths = env.get_episode_lengths()
    assert [6, 6, 6, 6] == lengths
    assert lengths[2:] == [episode.length for episode in started(session)]


def test_nothing_is_recorded_once_a_model_is_detached(session: mttp.Session) -> None:
    """
    During a training, neither episodes nor updates.
    """
    model = PPO("MlpPolicy", cartpole(), n_steps=8, batch_size=8, n_epochs=1, **small())
    handle = mttp.instrument(model)

    model.learn(32, callback=At(12, handle.detach))

    recording = mttp.read(session)
    assert ["detached"] == [episode.stop_reason for episode in recording]
    assert 12 == session.stats.steps
    assert [0] == [update.index for update in recording.updates]


def test_a_session_keeps_no_model_and_no_environment(session: mttp.Session) -> None:
    """
    Models of a search can be freed while the session is open; their last episodes end with it.
    """
    model = PPO("MlpPolicy", cartpole(), n_steps=8, batch_size=8, n_epochs=1, **small())
    mttp.instrument(model)
    model.learn(8)
    gone = weakref.ref(model), weakref.ref(model.get_env())

    del model
    gc.collect()

    assert (None, None) == tuple(one() for one in gone)
    session.close()
    assert ["training_ended"] == [episode.stop_reason for episode in mttp.read(session)]
