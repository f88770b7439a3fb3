"""Reading an environment's infos: reward components, outcome, and the infos of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec.plain import number
from mttp.model.results import RESULT
from mttp.recording.arguments import ScoringFacts
from mttp.recording.open_step import OpenStep

__all__ = ["components", "has_reward_facts", "of_one", "outcome", "reward", "scored"]

_PREFIX = "reward_"
_OUTCOMES = {True: "success", False: "failure"}


def components(info: Any) -> dict[str, float]:
    """Return the reward components: the numbers in `info["rewards"]` and in every `info["reward_…"]`."""
    if not isinstance(info, Mapping) or not info:
        return {}
    found = {
        name.removeprefix(_PREFIX): value
        for name, value in info.items()
        if isinstance(name, str) and name.startswith(_PREFIX)
    }
    listed = info.get("rewards")
    if isinstance(listed, Mapping):
        found |= {str(name): value for name, value in listed.items()}
    numbers = {name: number(value) for name, value in found.items() if name and _is_number(value)}
    return {name: value for name, value in numbers.items() if value is not None}


def reward(step: OpenStep, value: Any, info: Any, *, at: int) -> None:
    """Record a step's reward: a reward spec's result, else the value with the components in the info."""
    parts, result = components(info), scored(info)
    if result is not None:
        step.reward(result)
    else:
        scoring: ScoringFacts = {"components": parts, "start_time": at, "end_time": at} if parts else {}
        step.reward(value, **scoring)


def scored(info: Any) -> Any:
    """Return the reward spec's result for the step, or None."""
    return info.get(RESULT) if isinstance(info, Mapping) else None


def has_reward_facts(info: Any) -> bool:
    """Return whether an info has reward components or a reward spec's result."""
    if type(info) is dict and not info:  # the usual case
        return False
    return bool(components(info)) or scored(info) is not None


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def outcome(info: Any) -> str | None:
    """Return "success" or "failure" from the info's `is_success` or `success`, or None without them."""
    if (type(info) is dict and not info) or not isinstance(info, Mapping):
        return None
    for name in ("is_success", "success"):
        value = info.get(name)
        if isinstance(value, (bool, np.bool_)) or (_is_number(value) and value in (0, 1)):
            return _OUTCOMES[bool(value)]
    return None


def of_one(infos: Any, index: int) -> Mapping[Any, Any]:
    """Return the info of one environment out of a vector environment's infos."""
    if isinstance(infos, Mapping):
        return _picked(infos, index) if infos else infos
    if isinstance(infos, (list, tuple)) and isinstance(infos[index], Mapping):  # from DictInfoToList
        return infos[index]  # type: ignore[no-any-return]  # foreign, and a Mapping
    return {}


def _picked(infos: Mapping[Any, Any], index: int) -> dict[Any, Any]:
    found = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if _is_mask(infos, name) or (mask is not None and not mask[index]):
            continue
        if isinstance(values, Mapping):
            found[name] = _picked(values, index)
        elif isinstance(values, (list, tuple)) or getattr(values, "ndim", 0) > 0:
            found[name] = values[index]
    return found


def _is_mask(infos: Mapping[Any, Any], name: Any) -> bool:
    return isinstance(name, str) and name.startswith("_") and name[1:] in infos
