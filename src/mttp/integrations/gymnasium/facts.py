"""What an environment is: id, version, arguments, wrappers and spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from mttp.codec.plain import Faults, scalar_text
from mttp.integrations.gymnasium.spaces import describe

__all__ = ["layers", "of_env", "of_member", "of_spec", "members", "spaces"]

_OF_THE_VECTOR = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Arguments of `make_vec` that say nothing about a single environment."""


def layers(env: Any) -> Iterator[Any]:
    """An environment's wrappers, outermost first, and the environment within."""
    yield env
    while isinstance(env, (gymnasium.Wrapper, VectorWrapper)):
        env = env.env
        yield env


def of_env(env: Any, faults: Faults) -> dict[str, Any]:
    """What is known of an environment; a fact that can't be found out is said in `faults`."""
    facts: dict[str, Callable[[], Any]] = {
        "env": lambda: _id(env),
        "env_version": lambda: _version(env.unwrapped.spec),
        "env_kwargs": lambda: _kwargs(env),
        "env_wrappers": lambda: _wrappers(env),
        "env_spaces": lambda: spaces(env.observation_space, env.action_space),
    }
    return _found(facts, faults)


def of_member(vector: Any, index: int, faults: Faults) -> dict[str, Any]:
    """What is known of one environment of a vector environment."""
    inner = members(vector)
    member = inner[index] if inner else vector
    facts: dict[str, Callable[[], Any]] = {
        "env_index": lambda: index,
        "env": lambda: _id(vector if vector.unwrapped.spec is not None else member),
        "env_version": lambda: _version(vector.unwrapped.spec or member.unwrapped.spec),
        "env_kwargs": lambda: _kwargs(member),
        "env_wrappers": lambda: _vector_wrappers(vector) + (_wrappers(member) if inner else []),
        "env_spaces": lambda: spaces(vector.single_observation_space, vector.single_action_space),
    }
    return _found(facts, faults)


def of_spec(spec: Any) -> dict[str, Any]:
    """What is known of an environment that is out of reach, but for its spec; nothing without one."""
    if spec is None:
        return {}
    return {"env": str(spec.id), "env_version": _version(spec), "env_kwargs": _made_with(spec)}


def members(vector: Any) -> list[Any]:
    """A vector environment's environments; none where they are out of reach."""
    base = vector.unwrapped
    return list(base.envs) if isinstance(base, SyncVectorEnv) else []


def _found(facts: Mapping[str, Callable[[], Any]], faults: Faults) -> dict[str, Any]:
    found = {}
    for name, find in facts.items():
        try:
            found[name] = find()
        except Exception as error:
            faults.append(f"fact_unknown: {name}: {scalar_text(error)}")
    return found


def _id(env: Any) -> str:
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else str(spec.id)


def _version(spec: Any) -> str | None:
    version = getattr(spec, "version", None)
    return None if version is None else str(version)


def _kwargs(env: Any) -> dict[str, Any]:
    """What `gymnasium.make` would have to be given, besides the id."""
    spec = env.unwrapped.spec
    if spec is None:
        return {}
    kwargs = _made_with(spec)
    registered = gymnasium.registry.get(spec.id)
    if isinstance(env, gymnasium.Env) and registered is not None:
        limit = _time_limit(env)
        if limit != registered.max_episode_steps:
            kwargs["max_episode_steps"] = -1 if limit is None else limit
    return kwargs


def _made_with(spec: Any) -> dict[str, Any]:
    return {name: value for name, value in spec.kwargs.items() if name not in _OF_THE_VECTOR}


def _time_limit(env: Any) -> int | None:
    limits = [layer for layer in layers(env) if isinstance(layer, gymnasium.wrappers.TimeLimit)]
    return limits[-1]._max_episode_steps if limits else None


def _wrappers(env: Any) -> list[str]:
    return [type(layer).__name__ for layer in layers(env) if layer is not env.unwrapped]


def _vector_wrappers(vector: Any) -> list[str]:
    names = _wrappers(vector)
    if isinstance(vector.unwrapped, (SyncVectorEnv, AsyncVectorEnv)):
        names.append(type(vector.unwrapped).__name__)
    return names


def spaces(observation: Any, action: Any) -> dict[str, Any]:
    """Both spaces as plain data."""
    return {"observation": describe(observation), "action": describe(action)}
