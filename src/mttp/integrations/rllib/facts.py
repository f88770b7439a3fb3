"""The facts of RLlib's algorithms, environments and updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ray

from mttp.codec.plain import Faults, number
from mttp.codec.updates import logged_fields
from mttp.integrations.gymnasium import facts
from mttp.integrations.gymnasium.spaces import describe

__all__ = ["identity", "of_run", "of_update"]

_VERSION = "weights_seq_no"


def of_run(algorithm: Any) -> dict[str, Any]:
    """Return an algorithm's facts as arguments for `Session.describe`."""
    config = algorithm.config
    scalars = (bool, int, float, str)
    return {
        "trainer": "rllib",
        "trainer_version": ray.__version__,
        "algorithm": type(algorithm).__name__.lower(),
        "seed": config.seed,
        "config": {name: value for name, value in config.to_dict().items() if isinstance(value, scalars)},
    }


def of_update(learned: Mapping[str, Any]) -> dict[str, Any]:
    """Return one module's learner results as arguments for `training.update`."""
    numbers = {name: figure for name, value in learned.items() if (figure := number(value)) is not None}
    version = numbers.pop(_VERSION, None)
    fields, metrics = logged_fields(numbers)
    return {
        **fields,
        "policy_version_after": None if version is None else str(int(version)),
        "metrics": metrics,
    }


def identity(runner: Any, index: int) -> Callable[[Faults], dict[str, Any]]:
    """Return a function that returns the facts of one environment of a runner."""
    return lambda faults: _of_env(runner, index, faults)


def _of_env(runner: Any, index: int, faults: Faults) -> dict[str, Any]:
    config = runner.config
    env_facts: dict[str, Any] = {"env_index": index}
    if config.is_multi_agent:
        base = runner.env.envs[index].unwrapped
        env_facts["env_spaces"] = {
            "observation": _by_agent(base, base.get_observation_space),
            "action": _by_agent(base, base.get_action_space),
        }
    else:
        env_facts |= facts.of_member(runner.env, index, faults)
    env = config.env
    env_facts["env"] = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    return {**env_facts, "env_kwargs": {**env_facts.get("env_kwargs", {}), **config.env_config}}


def _by_agent(env: Any, space_of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the agents' spaces as one `Dict` space by agent."""
    return {
        "type": "Dict",
        "spaces": {str(agent): describe(space_of(agent)) for agent in env.possible_agents},
    }
