"""The stopping callback in a training run of Stable-Baselines3."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from integrations.diagnosed import play
from stable_baselines3 import PPO

import mttp
from mttp.integrations import stopping


@pytest.mark.parametrize(("hacks", "rollouts"), [(True, 2), (False, 4)])
def test_a_run_learns_until_its_diagnosis_says_stop(hacks: bool, rollouts: int) -> None:
    """
    A hacked run ends with the rollout that is diagnosed; a healthy one has all its time steps.
    """
    found: list[mttp.study.Diagnosis] = []
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=3)
    callback = stopping.sb3_callback(every=2, on_diagnosis=found.append)

    with mttp.configure("memory://"):
        play(hacks)
        model.learn(4 * 64, callback=callback)

    # The step after the rollout is the first to be asked.
    assert hacks is (model.num_timesteps < 4 * 64)
    assert rollouts == model.num_timesteps // 64
    assert [hacks] * len(found) == [one.should_stop for one in found]
