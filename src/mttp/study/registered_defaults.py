"""Defaults of environments' arguments, as Gymnasium has them registered here."""

from __future__ import annotations

import inspect
from typing import Any


def registered_default(env: str, name: str) -> Any:
    """
    Return the value of an environment's argument where none is recorded; None where it is not known.

    It is what Gymnasium has registered here, `max_episode_steps` included, else the constructor's default.
    """
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator

        spec = gymnasium.spec(env)
        if name == "max_episode_steps":
            return spec.max_episode_steps or -1  # as one without a limit is recorded
        if name in spec.kwargs:
            return spec.kwargs[name]
        creator: Any = spec.entry_point
        creator = load_env_creator(creator) if isinstance(creator, str) else creator
        default = inspect.signature(creator).parameters[name].default
    except Exception:  # without Gymnasium, or an environment or an argument that is not known here
        return None
    return None if default is inspect.Parameter.empty else default
