"""The facts of an environment: id, version, arguments, wrappers and spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from mttp.codec.plain import Faults, scalar_text
from mttp.integrations.gymnasium.spaces import describe
from mttp.model.interrupts import raise_interrupt

__all__ = ["facts_found", "layers", "of_env", "of_member", "of_spec", "members", "spaces"]

_VECTOR_ARGUMENTS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Arguments of `make_vec` that concern the vector and not its environments."""


def layers(env: Any) -> Iterator[Any]:
    """Iterate over an environment's wrappers, outermost first, and then the innermost environment."""
    yield env
    while isinstance(env, (gymnasium.Wrapper, VectorWrapper)):
        env = env.env
        yield env


def of_env(env: Any, faults: Faults) -> dict[str, Any]:
    """Return the facts of an environment; a fact that raises is left out and added to `faults`."""
    facts: dict[str, Callable[[], Any]] = {
        "env": lambda: _id(env),
        "env_version": lambda: _version(env.unwrapped.spec),
        "env_kwargs": lambda: _kwargs(env),
        "env_wrappers": lambda: _wrappers(env),
        "env_spaces": lambda: spaces(env.observation_space, env.action_space),
    }
    return facts_found(facts, faults)


def of_member(vector: Any, index: int, faults: Faults) -> dict[str, Any]:
    """Return the facts of one environment of a vector environment."""
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
    return facts_found(facts, faults)


def of_spec(spec: Any) -> dict[str, Any]:
    """Return the facts in an environment's spec, for an environment in another process."""
    if spec is None:
        return {}
    return {"env": str(spec.id), "env_version": _version(spec), "env_kwargs": _spec_kwargs(spec)}


def members(vector: Any) -> list[Any]:
    """Return a vector environment's environments; empty if they are in other processes or do not exist."""
    base = vector.unwrapped
    return list(base.envs) if isinstance(base, SyncVectorEnv) else []


def facts_found(facts: Mapping[str, Callable[[], Any]], faults: Faults) -> dict[str, Any]:
    """Return the facts by name; one that raises is left out and added to `faults`."""
    values = {}
    for name, find in facts.items():
        try:
            values[name] = find()
        except Exception as error:
            raise_interrupt(error)
            faults.append(f"fact_unknown: {name}: {scalar_text(error)}")
    return values


def _id(env: Any) -> str:
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else str(spec.id)


def _version(spec: Any) -> str | None:
    version = getattr(spec, "version", None)
    return None if version is None else str(version)


def _kwargs(env: Any) -> dict[str, Any]:
    """Return the keyword arguments with which `gymnasium.make` creates this environment."""
    spec = env.unwrapped.spec
    if spec is None:
        return {}
    kwargs = _spec_kwargs(spec)
    registered = gymnasium.registry.get(spec.id)
    if isinstance(env, gymnasium.Env) and registered is not None:
        limit = _time_limit(env)
        if limit != registered.max_episode_steps:
            kwargs["max_episode_steps"] = -1 if limit is None else limit
    return kwargs


def _spec_kwargs(spec: Any) -> dict[str, Any]:
    return {name: value for name, value in spec.kwargs.items() if name not in _VECTOR_ARGUMENTS}


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
    """Return the observation and action spaces as plain data."""
    return {"observation": describe(observation), "action": describe(action)}
