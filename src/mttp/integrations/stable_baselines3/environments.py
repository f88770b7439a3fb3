"""The environments of a vector, in this process or in others: what they are, and that only we record them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mttp.codec.plain import Faults
from mttp.integrations.gymnasium import facts, workers
from mttp.integrations.gymnasium.silence import silence as silence_env

__all__ = ["identity", "seeds", "silence"]


def identity(vector: Any, index: int, *, max_bytes: int) -> Callable[[Faults], dict[str, Any]]:
    """What finds out what one environment of the vector is."""
    return partial(_identity, vector, index, max_bytes)


def _identity(vector: Any, index: int, max_bytes: int, faults: Faults) -> dict[str, Any]:
    members = getattr(vector.unwrapped, "envs", None)
    wrappers = _wrappers(vector)
    if members is not None:
        found = facts.of_env(members[index], max_bytes=max_bytes, faults=faults)
        found["env_wrappers"] = [*wrappers, *found.get("env_wrappers", ())]
    else:
        found = facts.of_spec(vector.get_attr("spec", [index])[0])
        found["env_wrappers"] = wrappers
    found["env_spaces"] = facts.spaces(vector.observation_space, vector.action_space, max_bytes)
    return {**found, "env_index": index}


def _wrappers(vector: Any) -> list[str]:
    """The vector's wrappers and the vector, outermost first."""
    names = [type(vector).__name__]
    while (inner := vars(vector).get("venv")) is not None:
        vector = inner
        names.append(type(vector).__name__)
    return names


def seeds(model: Any, vector: Any) -> list[int | None]:
    """The seeds of the environments' first episodes, as far as they are what the model was given."""
    count = vector.num_envs
    if model.seed is None:
        return [None] * count
    found = vector.get_attr("np_random_seed")
    return [model.seed + index if found[index] == model.seed + index else None for index in range(count)]


def silence(vector: Any, *, silent: bool) -> None:
    """Have whoever else records the vector's environments keep silent, in whichever process, or no longer."""
    if vector is None:
        return
    base = vector.unwrapped
    for env in getattr(base, "envs", ()):
        silence_env(env, silent=silent)
    if not hasattr(base, "remotes") or base.closed:
        return
    if any(base.env_method("has_wrapper_attr", workers.MUTED)):
        base.env_method("set_wrapper_attr", workers.MUTED, silent)
