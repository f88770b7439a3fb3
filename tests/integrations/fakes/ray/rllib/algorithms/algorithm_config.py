"""RLlib's configuration, algorithm, environment runner and episodes, for scripted actions."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import SyncVectorEnv

from ray.rllib.callbacks.callbacks import RLlibCallback

__all__ = ["Algorithm", "AlgorithmConfig"]


class _Episode:
    """One agent's observations, actions, rewards and infos."""

    def __init__(self, number: int) -> None:
        self.id_ = f"episode {number}"
        self.rows: dict[str, list[Any]] = {"obs": [], "actions": [], "rewards": [], "infos": []}
        self.extra_model_outputs: dict[str, list[float]] = {}
        self.t = 0
        self.is_terminated = self.is_truncated = False

    def add(self, obs: Any, info: Any, action: Any = None, reward: Any = None, **extra: float) -> None:
        """Add a step; the first one is the reset."""
        self.t += bool(self.rows["obs"])
        for name, value in (("obs", obs), ("actions", action), ("rewards", reward), ("infos", info)):
            self.rows[name].append(value)
        for name, value in extra.items():
            self.extra_model_outputs.setdefault(name, []).append(value)

    def get_observations(self, index: int) -> Any:
        """Return an observation."""
        return self.rows["obs"][index]

    def get_actions(self, index: int) -> Any:
        """Return an action."""
        return self.rows["actions"][index]

    def get_rewards(self, index: int) -> Any:
        """Return a reward."""
        return self.rows["rewards"][index]

    def get_infos(self, index: int) -> Any:
        """Return an info."""
        return self.rows["infos"][index]

    def get_extra_model_outputs(self, name: str, index: int) -> Any:
        """Return an output of the policy."""
        return self.extra_model_outputs[name][index]


class _Episodes:
    """The episodes of several agents."""

    def __init__(self, number: int) -> None:
        self.id_ = f"episode {number}"
        self.agent_episodes: dict[str, _Episode] = {}

    def module_for(self, agent: str) -> str:
        """Return the name of an agent's policy."""
        return f"policy of {agent}"


class _Several:
    """A vector of one environment with several agents."""

    def __init__(self, env: Any) -> None:
        self.envs = [env]

    @property
    def unwrapped(self) -> Any:
        """The vector."""
        return self


class _Runner:
    """Steps one environment with scripted actions."""

    def __init__(self, config: AlgorithmConfig, worker_index: int) -> None:
        self.config, self.worker_index = config, worker_index
        self._callbacks = [kind() for kind in config.listed()]
        self._weights_seq_no = 1
        self.env: Any = _Several(config.env()) if config.is_multi_agent else SyncVectorEnv([config.env])
        self.number = 0
        self.call("on_environment_created", env=self.env)

    def call(self, event: str, **facts: Any) -> None:
        """Call the callbacks."""
        for callback in self._callbacks:
            getattr(callback, event)(env_runner=self, **facts)

    def sample(self) -> list[Any]:
        """Run one episode of each kind."""
        self.number += 1
        run = self.several if self.config.is_multi_agent else self.one
        episode = (_Episodes if self.config.is_multi_agent else _Episode)(self.number)
        self.call("on_episode_created", episode=episode, env_index=0)
        run(episode)
        self.call("on_episode_end", episode=episode, env_index=0)
        self.call("on_sample_end", samples=[episode])
        return [episode]

    def one(self, episode: Any) -> None:
        """Run an episode of one agent."""
        env = self.env.envs[0]
        episode.add(*env.reset())
        self.call("on_episode_start", episode=episode, env_index=0)
        over = False
        while not over:
            action = int(env.unwrapped.at == 0)
            obs, reward, terminated, truncated, info = env.step(action)
            episode.add(obs, info, action, reward, action_logp=-0.5, weights_seq_no=1.0)
            over = episode.is_terminated or terminated or truncated
            episode.is_terminated, episode.is_truncated = bool(terminated), bool(truncated)
            self.call("on_episode_step", episode=episode, env_index=0)

    def several(self, episodes: Any) -> None:
        """Run an episode of several agents, all of which act at once."""
        env = self.env.envs[0]
        seen, infos = env.reset()
        own = episodes.agent_episodes
        for agent in seen:
            own[agent] = _Episode(self.number)
            own[agent].add(seen[agent], infos.get(agent))
        self.call("on_episode_start", episode=episodes, env_index=0)
        over = False
        while not over:
            actions = {agent: index for index, agent in enumerate(seen)}
            seen, rewards, terminations, truncations, infos = env.step(actions)
            over = terminations["__all__"] or truncations["__all__"]
            for agent, action in actions.items():
                row = seen[agent], infos.get(agent), action, rewards[agent]
                own[agent].add(*row, action_logp=-1.5, weights_seq_no=1.0)
                own[agent].is_terminated = terminations.get(agent, False) or over
                own[agent].is_truncated = truncations.get(agent, False)
            seen = {agent: each for agent, each in seen.items() if not own[agent].is_truncated}
            self.call("on_episode_step", episode=episodes, env_index=0)


class _Group:
    """The runners of an algorithm."""

    def __init__(self, runners: list[_Runner]) -> None:
        self.runners = runners

    def foreach_env_runner(self, function: Any) -> list[Any]:
        """Call a function with each runner."""
        return [function(runner) for runner in self.runners]


class AlgorithmConfig:
    """The configuration of an algorithm."""

    _is_frozen = False

    def __init__(self, env: Any = None, *, is_multi_agent: bool = False) -> None:
        self.env, self.is_multi_agent = env, is_multi_agent
        self.callbacks_class: Any = RLlibCallback
        self.env_config: dict[str, Any] = {"size": 3}
        self.in_evaluation, self.gamma, self.seed = False, 0.9, 5

    def callbacks(self, callbacks_class: Any) -> AlgorithmConfig:
        """Set the callbacks."""
        self.callbacks_class = RLlibCallback if callbacks_class is None else callbacks_class
        return self

    def listed(self) -> list[Any]:
        """Return the callbacks as a list."""
        found = self.callbacks_class
        return list(found) if isinstance(found, list) else [found]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return dict(vars(self))

    def build_algo(self) -> Algorithm:
        """Build the algorithm."""
        return Algorithm(self)


class Algorithm:
    """Samples episodes, and reports what a learner would."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        self.callbacks = [kind() for kind in config.listed()]
        self.env_runner_group = _Group([_Runner(config, 0)])
        self.eval_env_runner_group = None
        for callback in self.callbacks:
            callback.on_algorithm_init(algorithm=self)

    def train(self) -> list[Any]:
        """Sample an episode, and learn."""
        sampled = [runner.sample() for runner in self.env_runner_group.runners]
        learned = {"total_loss": 0.5, "mean_kl_loss": 0.25, "vf_loss": 2.0, "weights_seq_no": 2.0}
        result = {"learners": {"default_policy": learned, "__all_modules__": {"num_steps": 3.0}}}
        for callback in self.callbacks:
            callback.on_train_result(algorithm=self, result=result)
        return sampled
