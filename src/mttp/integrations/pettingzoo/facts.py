"""The facts of a PettingZoo environment: name, version, wrappers and spaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from mttp.codec.plain import Faults
from mttp.integrations.gymnasium.facts import facts_found
from mttp.integrations.gymnasium.spaces import describe

__all__ = ["of_env"]

_VERSION = re.compile(r"_v(\d+)$")


def of_env(env: Any, faults: Faults) -> dict[str, Any]:
    """Return the facts of an environment; a fact that raises is left out and added to `faults`."""
    facts: dict[str, Callable[[], Any]] = {
        "env": lambda: _name(env),
        "env_version": lambda: _version(_name(env)),
        "env_wrappers": lambda: [type(layer).__name__ for layer in _layers(env)][:-1],
        "env_spaces": lambda: {
            "observation": _by_agent(env, env.observation_space),
            "action": _by_agent(env, env.action_space),
        },
    }
    return facts_found(facts, faults)


def _name(env: Any) -> str:
    base = env.unwrapped
    return str((getattr(base, "metadata", None) or {}).get("name") or type(base).__name__)


def _version(name: str) -> str | None:
    found = _VERSION.search(name)
    return found[1] if found else None


def _layers(env: Any) -> Iterator[Any]:
    """Iterate over the wrappers and conversions, outermost first, and then the innermost environment."""
    while env is not None:
        yield env
        env = vars(env).get("env") or vars(env).get("aec_env")


def _by_agent(env: Any, space_of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the agents' spaces as one `Dict` space by agent."""
    agents = getattr(env, "possible_agents", None) or env.agents
    return {"type": "Dict", "spaces": {str(agent): describe(space_of(agent)) for agent in agents}}
