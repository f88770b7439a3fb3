"""RLlib's integration with a stand-in for the library, which always runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import told

pytest.importorskip("gymnasium")

TESTS = Path(__file__).parents[1]
BEGINNING = f"""
    import json, sys
    sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "integrations" / "fakes")!r}]
    import gymnasium, functools
    import mttp
    import numpy as np
    from gymnasium import spaces
    from integrations.toys import Scripted
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    class Pair(gymnasium.Env):
        '''Two agents, of which the second is truncated after a step.'''

        possible_agents = ["a", "b"]
        at = 0

        def get_observation_space(self, agent):
            return spaces.Box(0, 9, (1,), np.float32)

        def get_action_space(self, agent):
            return spaces.Discrete(2)

        def shown(self, agents):
            return {{agent: np.array([self.at], np.float32) for agent in agents}}

        def reset(self, **_):
            self.at = 0
            return self.shown("ab"), {{}}

        def step(self, actions):
            self.at += 1
            rewards = {{agent: 1.0 + action for agent, action in actions.items()}}
            ends = {{"__all__": self.at == 2}}
            cuts = {{"b": self.at == 1, "__all__": False}}
            return self.shown(actions), rewards, ends, cuts, {{}}

    def steps(found):
        return [[step.agent, step.index, step.observation.tolist(), step.action, step.reward, step.logprob]
                for step in found.steps]
"""


def test_one_agent_is_recorded() -> None:
    """
    Each episode has RLlib's values, the environment, the policy's version, and an update for each module.
    """
    ways, first, update, run = told(
        BEGINNING
        + """
    from mttp.integrations.rllib import EpisodeCallback
    ways = []
    for way in ("config", "algorithm", "everything", "class"):
        with mttp.configure("memory://") as session:
            config = AlgorithmConfig(Scripted)
            handle = mttp.instrument() if way == "everything" else None
            if way == "config":
                handle = mttp.instrument(config, policy="p")
            if way == "class":
                config.callbacks(functools.partial(EpisodeCallback, policy="p"))
            algorithm = config.build_algo()
            if way == "algorithm":
                handle = mttp.instrument(algorithm)
            returns = [sum(filter(None, algorithm.train()[0][0].rows["rewards"][1:])) for _ in range(2)]
            if handle is not None:
                assert any(handle.status().values()), handle.status()
                handle.detach()
                assert not any(handle.status().values()), handle.status()
                if way == "algorithm":
                    algorithm.train()
        recording = mttp.read(session)
        episodes = recording.episodes
        ways.append([way, len(episodes), [e.status for e in episodes], dict(session.stats.faults)])
    first, update = episodes[0], recording.updates[0]
    print(json.dumps([ways, [
        first.env, first.env_kwargs, first.env_index, first.policy, first.policy_version_start,
        first.policy_version_end, first.metadata["rllib_episode"], first.metadata["in_evaluation"],
        steps(first), first.return_ == returns[0], first.terminated, first.final_observation is not None,
    ], [update.policy, update.loss, update.kl, update.policy_version_after, update.value_loss],
    [recording.runs[0].trainer, recording.runs[0].algorithm, recording.runs[0].seed]]))
    """
    )

    assert [[way, 2, ["completed"] * 2, {}] for way in ("config", "algorithm", "everything", "class")] == ways
    assert ["Scripted", {"size": 3}, 0, "p", "1", "1", "episode 1", False] == first[:8]
    assert [-0.5] == sorted({row[5] for row in first[8]})
    assert [True, True, True] == first[9:]
    assert ["default_policy", 0.5, 0.25, "2", 2.0] == update
    assert ["rllib", "algorithm", 5] == run


def test_several_agents_are_recorded() -> None:
    """
    Each agent has its steps, policy, return and flags.
    """
    agents, rows, episode = told(
        BEGINNING
        + """
    with mttp.configure("memory://") as session:
        config = AlgorithmConfig(Pair, is_multi_agent=True)
        mttp.instrument(config)
        config.build_algo().train()
    (episode,) = mttp.read(session)
    print(json.dumps([
        sorted([a.id, a.policy, a.policy_version_start, a.return_, a.length, a.terminated, a.truncated]
               for a in episode.agents),
        steps(episode),
        [episode.env, episode.status, episode.terminated, sorted(episode.env_spaces["action"]["spaces"])],
    ]))
    """
    )

    assert [
        ["a", "policy of a", "1", 2.0, 2, True, False],
        ["b", "policy of b", "1", 2.0, 1, False, True],
    ] == agents
    assert [
        ["a", 0, [0.0], 0, 1.0, -1.5],
        ["b", 0, [0.0], 1, 2.0, -1.5],
        ["a", 1, [1.0], 0, 1.0, -1.5],
    ] == rows
    assert ["Pair", "completed", False, ["a", "b"]] == episode


def test_an_error_of_a_hook_harms_nothing() -> None:
    """
    The algorithm's results are those without recording, and the fault is counted.
    """
    plain, recorded, faults = told(
        BEGINNING
        + """
    from mttp.integrations.rllib import recorder
    from mttp.recording import training
    def rows(algorithm):
        return repr([episode.rows for (episode,) in algorithm.train()])
    plain = rows(AlgorithmConfig(Scripted).build_algo())
    for name in ("on_environment_created", "on_episode_created", "on_episode_start", "on_episode_step",
                 "on_episode_end", "on_sample_end"):
        setattr(recorder.RunnerRecorder, name, lambda *_: 1 / 0)
    training.update = None
    import logging; logging.disable()
    with mttp.configure("memory://") as session:
        config = AlgorithmConfig(Scripted)
        mttp.instrument(config)
        recorded = rows(config.build_algo())
    print(json.dumps([plain, recorded, list(session.stats.faults)]))
    """
    )

    assert plain == recorded
    assert ["integration_error"] == faults


def test_episodes_of_evaluation_runners_have_their_split() -> None:
    """
    Others have none.
    """
    splits = told(
        BEGINNING
        + """
    with mttp.configure("memory://") as session:
        config = AlgorithmConfig(Scripted)
        mttp.instrument(config)
        algorithm = config.build_algo()
        algorithm.train()
        config.in_evaluation = True
        algorithm.train()
    print(json.dumps([episode.split for episode in mttp.read(session)]))
    """
    )

    assert [None, "eval"] == splits


def test_other_objects_are_refused() -> None:
    """
    A frozen configuration, an unknown option and another object of the library raise InstrumentError.
    """
    errors = told(
        BEGINNING
        + """
    from mttp.errors import InstrumentError
    from ray.rllib.callbacks.callbacks import RLlibCallback
    frozen = AlgorithmConfig(Scripted)
    frozen._is_frozen = True
    errors = []
    for target, options in ((frozen, {}), (AlgorithmConfig(Scripted), {"polcy": 1}), (RLlibCallback(), {})):
        try:
            mttp.instrument(target, **options)
        except InstrumentError as error:
            errors.append(str(error)[:40])
    print(json.dumps(errors))
    """
    )

    assert [
        "the configuration is frozen; instrument ",
        "there is no option 'polcy'; the options ",
        "ray.rllib.callbacks.callbacks.RLlibCallb",
    ] == errors


def test_a_renamed_seam_is_named() -> None:
    """
    A method that this version of RLlib lacks is False in the status, and one warning names it.
    """
    status = told(
        BEGINNING
        + """
    del AlgorithmConfig.build_algo
    with mttp.configure("memory://"):
        with mttp.instrument() as handle:
            print(json.dumps(handle.status()["AlgorithmConfig.build_algo"]))
    """,
        warned="has no AlgorithmConfig.build_algo",
    )

    assert not status
