"""The environments of a Stable-Baselines3 vector, in this process or in workers: facts, seeds and muting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from stable_baselines3.common.monitor import Monitor

from mttp.codec.plain import Faults, scalar_text
from mttp.integrations.gymnasium import facts, workers
from mttp.integrations.gymnasium.inplace import silence as silence_env
from mttp.integrations.gymnasium.workers import split_of
from mttp.model.interrupts import raise_interrupt
from mttp.recording.configuration import current_session

__all__ = ["identity", "in_episode", "mark_workers", "seeds", "silence"]


def identity(vector: Any, index: int) -> Callable[[Faults], dict[str, Any]]:
    """Return a function that returns one environment's facts; it holds the vector by a weak reference."""
    return partial(_identity, ref(vector), index)


def _identity(reference: Callable[[], Any], index: int, faults: Faults) -> dict[str, Any]:
    vector = reference()
    env_facts: dict[str, Any] = {"env": type(vector.unwrapped).__name__}
    try:
        env_facts |= _of_member(vector, index, faults)
    except Exception as error:  # a custom vector without that method
        raise_interrupt(error)
        faults.append(f"fact_unknown: env: {scalar_text(error)}")
    env_facts["env_wrappers"] = [*_wrappers(vector), *env_facts.get("env_wrappers", ())]
    env_facts["env_spaces"] = facts.spaces(vector.observation_space, vector.action_space)
    return {**env_facts, "env_index": index}


def _of_member(vector: Any, index: int, faults: Faults) -> dict[str, Any]:
    members = getattr(vector.unwrapped, "envs", None)
    if members is not None:
        return facts.of_env(members[index], faults)
    if hasattr(vector.unwrapped, "remotes"):
        spec: dict[str, Any] = _worker_facts(vector, index).get("spec", {})
        return spec
    return facts.of_spec(vector.get_attr("spec", [index])[0])


def _worker_facts(vector: Any, index: int) -> dict[str, Any]:
    """Return the spec and the seed of an environment in a worker; empty if they cannot be read."""
    if not all(vector.env_is_wrapped(workers.CollectFacts(), [index])):
        return {}
    worker_facts: dict[str, Any] = vector.get_attr(workers.FACTS, [index])[0]
    return worker_facts


def _wrappers(vector: Any) -> list[str]:
    """Return the class names of the vector's wrappers, outermost first, and of the vector."""
    names = [type(vector).__name__]
    while (inner := vars(vector).get("venv")) is not None:
        vector = inner
        names.append(type(vector).__name__)
    return names


def seeds(model: Any, vector: Any) -> list[int | None]:
    """Return the seeds of the environments' first episodes; None where not from the model's seed."""
    unknown: list[int | None] = [None] * vector.num_envs
    if model.seed is None:
        return unknown
    try:
        if hasattr(vector.unwrapped, "remotes"):
            actual_seeds = [_worker_facts(vector, index).get("seed") for index in range(vector.num_envs)]
        else:
            actual_seeds = vector.get_attr("np_random_seed")
    except Exception as error:  # a custom vector without that method
        raise_interrupt(error)
        return unknown
    expected = range(model.seed, model.seed + vector.num_envs)
    return [seed if seed == actual else None for seed, actual in zip(expected, actual_seeds, strict=True)]


def in_episode(model: Any, vector: Any) -> list[bool]:
    """Return which environments are inside an episode; False where neither model nor monitors know."""
    if hasattr(model, "rollout_buffer"):
        return [not starts for starts in model._last_episode_starts]
    if all(vector.env_is_wrapped(Monitor)):
        return [bool(rewards) for rewards in vector.get_attr("rewards")]
    return [False] * vector.num_envs


def silence(vector: Any, *, silent: bool) -> None:
    """Mute or unmute the other recorders of the vector's environments, in this process and in workers."""
    if vector is None:
        return
    base = vector.unwrapped
    for env in getattr(base, "envs", ()):
        silence_env(env, silent=silent)
    if hasattr(base, "remotes") and not base.closed:
        base.env_is_wrapped(workers.SetMuted(silent))


def mark_workers(vector: Any) -> None:
    """Tell workers, before a reset, whether an evaluation begins their next episodes: their callers don't."""
    session = current_session()
    if session is not None and not vector.closed and not vector.waiting:
        vector.env_is_wrapped(workers.SetSplit(split_of(session)))
