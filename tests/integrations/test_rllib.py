"""The integration with RLlib: the library's results are unchanged, and its values are those recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mttp

pytest.importorskip("ray.rllib")

PROGRAM = """
import hashlib, json
import gymnasium, mttp, ray
import numpy as np
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.multi_agent_env import MultiAgentEnv

SEEN, ENDED = {}, set()

class Observer(RLlibCallback):
    '''Keeps the library's own values, before learners add steps to the chunks of episodes.'''

    def on_sample_end(self, *, samples, **_):
        for chunk in samples:
            if hasattr(chunk, "agent_episodes"):
                agents = SEEN.setdefault(chunk.id_, {})
                for agent, own in chunk.agent_episodes.items():
                    agents.setdefault(agent, []).extend(rows(own))
            else:
                SEEN.setdefault(chunk.id_, []).extend(rows(chunk))

    def on_episode_end(self, *, episode, **_):
        ENDED.add(episode.id_)

def rows(chunk):
    indices = range(len(chunk))
    return [[np.asarray(chunk.get_observations(i)).tolist(), int(chunk.get_actions(i)),
             float(chunk.get_rewards(i)), float(chunk.get_extra_model_outputs("action_logp", i))]
            for i in indices]

class Steps(MultiAgentEnv):
    '''Agents count; "odd" acts at every second step only, and gets its reward a step later.'''

    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["even", "odd"]
        self.observation_spaces = {agent: spaces.Box(0, 9, (1,), np.float32) for agent in self.agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.agents}

    def shown(self):
        names = ["even", "odd"] if self.at % 2 == 0 else ["even"]
        return {name: np.array([self.at], np.float32) for name in names}

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self.shown(), {}

    def step(self, actions):
        self.at += 1
        rewards = {"even": float(actions.get("even", 0)), "odd": 0.5}
        return self.shown(), rewards, {"__all__": self.at == 5}, {"__all__": False}, {}

def config(env, runners=0):
    found = PPOConfig().environment(env).debugging(seed=3).training(
        train_batch_size=120, minibatch_size=60, num_epochs=1)
    found = found.env_runners(num_env_runners=runners, rollout_fragment_length="auto")
    if env is Steps:
        found = found.multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, episode, **_: "p")
    return found.callbacks(Observer)

def trained(algorithm):
    '''Train, and return the library's results and a digest of the weights.'''
    SEEN.clear(), ENDED.clear()
    results = [algorithm.train()["env_runners"] for _ in range(2)]
    state = algorithm.learner_group.get_weights()
    digest = hashlib.sha256()
    for module in sorted(state):
        for name in sorted(state[module]):
            digest.update(np.asarray(state[module][name]).tobytes())
    algorithm.stop()
    keys = ("episode_return_mean", "num_env_steps_sampled_lifetime", "num_episodes_lifetime")
    return [digest.hexdigest(), [[float(result[key]) for key in keys] for result in results],
            {id: SEEN[id] for id in ENDED}]

ray.init(num_cpus=2, include_dashboard=False)
facts = {"plain": trained(config("CartPole-v1").build_algo())}
with mttp.configure("file://runs/local/"), mttp.instrument():  # gymnasium, too
    facts["recorded"] = trained(config("CartPole-v1").build_algo())
with mttp.configure("file://runs/several/"):
    chosen = config(Steps)
    mttp.instrument(chosen)
    facts["several"] = trained(chosen.build_algo())
with mttp.configure("file://runs/remote/"):
    chosen = config("CartPole-v1", runners=1)
    mttp.instrument(chosen)
    facts["remote"] = trained(chosen.build_algo())
from mttp.integrations.rllib.recorder import RunnerRecorder
for name in ("on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end"):
    setattr(RunnerRecorder, name, lambda *_: 1 / 0)
with mttp.configure("file://runs/failing/") as session:
    chosen = config("CartPole-v1")
    mttp.instrument(chosen)
    facts["failing"] = trained(chosen.build_algo())
    facts["faults"] = list(session.stats.faults)
open("facts.json", "w").write(json.dumps(facts))
ray.shutdown()
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return the directory of a program that trains with RLlib."""
    directory = Path(tempfile.mkdtemp(prefix="rllib-", dir="/tmp"))  # names of Ray's sockets may not be long
    (directory / "program.py").write_text(PROGRAM)
    quiet = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(directory),
        "PYTHONWARNINGS": "ignore",
    }
    try:
        subprocess.run(
            [sys.executable, "program.py"], cwd=directory, env=os.environ | quiet, timeout=230, check=True
        )
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def facts(place: Path) -> Any:
    """Return what the program wrote of the library's own values."""
    return json.loads((place / "facts.json").read_text())


def ended(place: Path, name: str) -> dict[str, mttp.Episode]:
    """Return the episodes of a run that have ended, by the library's id."""
    found = mttp.read(place / "runs" / name)
    return {episode.metadata["rllib_episode"]: episode for episode in found if episode.status == "completed"}


def rows(steps: Any) -> list[Any]:
    """Return observations, actions, rewards and log probabilities."""
    return [
        [step.observation.tolist(), step.action, step.reward, pytest.approx(step.logprob)] for step in steps
    ]


def test_training_is_unchanged(facts: Any) -> None:
    """
    Results and weights are those without recording, also where each hook raises.
    """
    plain = facts["plain"][:2]

    assert [plain, plain] == [facts["recorded"][:2], facts["failing"][:2]]
    assert ["integration_error"] == facts["faults"]


def test_one_agents_values_are_the_librarys(place: Path, facts: Any) -> None:
    """
    Each episode that RLlib has ended is recorded once, with its values, across the chunks of it.
    """
    episodes = ended(place, "local")

    assert facts["recorded"][2] == {id: rows(episode.steps) for id, episode in episodes.items()}
    everything = mttp.read(place / "runs" / "local").episodes
    steps = facts["recorded"][1][-1][1]
    assert (steps, {"CartPole-v1"}) == (sum(e.length for e in everything), {e.env for e in everything})
    assert {"completed", "aborted"} >= {e.status for e in everything}


def test_several_agents_values_are_the_librarys(place: Path, facts: Any) -> None:
    """
    Each agent's steps are those of its episode, also of an agent that acts at every second step.
    """
    recorded = {
        id: {
            agent.id: rows(step for step in episode.steps if step.agent == agent.id)
            for agent in episode.agents
        }
        for id, episode in ended(place, "several").items()
    }

    assert facts["several"][2] == recorded
    first = next(iter(ended(place, "several").values()))
    assert ({"even": 5, "odd": 3}, {"p"}) == (
        {agent.id: agent.length for agent in first.agents},
        {agent.policy for agent in first.agents},
    )


def test_runners_in_other_processes_record_into_the_run(place: Path, facts: Any) -> None:
    """
    All of their steps are in the run of the algorithm's process.
    """
    recording = mttp.read(place / "runs" / "remote")

    assert facts["remote"][1][-1][1] == sum(episode.length for episode in recording)
    assert 1 == len({run.id for run in recording.runs} | {episode.run_id for episode in recording})
    assert {1} == {episode.metadata["worker_index"] for episode in recording}


def test_updates_are_recorded(place: Path) -> None:
    """
    Each training iteration has an update with the loss and the version of the weights.
    """
    recording = mttp.read(place / "runs" / "local")

    assert [("default_policy", "1"), ("default_policy", "2")] == [
        (update.policy, update.policy_version_after) for update in recording.updates
    ]
    assert all(update.loss is not None and update.kl is not None for update in recording.updates)
    assert ("ppo", "rllib", 3) == (
        recording.runs[0].algorithm,
        recording.runs[0].trainer,
        recording.runs[0].seed,
    )
