"""An algorithm that learns nothing, and calls what the library's algorithms call."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np

from stable_baselines3.common.callbacks import BaseCallback


class BaseAlgorithm:
    """Plays its environment by a function of its own, which its user gives."""

    def __init__(self, env: Any, act: Any, n_steps: int, gamma: float = 0.9) -> None:
        self.env, self.act, self.n_steps, self.gamma = env, act, n_steps, gamma
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.seed, self.device = None, "cpu"
        self.logger = SimpleNamespace(name_to_value=defaultdict(float))
        weight = SimpleNamespace(numel=lambda: 3, requires_grad=True)
        self.policy = SimpleNamespace(net_arch=[4], parameters=lambda: [weight], optimizer=weight)
        self.rollout_buffer = SimpleNamespace()
        self._last_obs: Any = None
        self._n_updates = 0

    def get_env(self) -> Any:
        """The vector."""
        return self.env

    def get_vec_normalize_env(self) -> Any:
        """None."""

    def _init_callback(self, callback: Any, progress_bar: bool = False) -> Any:
        callback = callback or BaseCallback()
        callback.init_callback(self)
        return callback

    def learn(self, rollouts: int, callback: Any = None) -> BaseAlgorithm:
        """Play so many rollouts."""
        self._last_obs = self.env.reset()
        self._last_episode_starts = np.ones(1, bool)
        callback = self._init_callback(callback)
        callback.on_training_start(locals(), globals())
        for _ in range(rollouts):
            callback.on_rollout_start()
            self._collect(callback)
            callback.on_rollout_end()
            self._n_updates += 1
            self.logger.name_to_value["train/n_updates"] = self._n_updates
            self.logger.name_to_value["train/loss"] = 0.5
        callback.on_training_end()
        return self

    def _collect(self, callback: Any) -> None:
        paid = []
        for step in range(self.n_steps):
            actions = self.act()
            values, log_probs = np.array([[step + 0.5]]), np.array([-step - 0.25])
            new_obs, rewards, dones, infos = self.env.step(actions)
            callback.update_locals(locals())
            callback.on_step()
            paid.append(rewards)
            self._last_obs, self._last_episode_starts = new_obs, dones
        rewards = np.array(paid)
        vars(self.rollout_buffer).update(rewards=rewards, advantages=rewards + 1, returns=rewards + 2)
