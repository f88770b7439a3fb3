"""What environments tell on the side: reward components, success, and the infos of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec.plain import number
from mttp.model.results import RESULT

__all__ = ["components", "is_told", "of_one", "outcome", "scored"]

_PREFIX = "reward_"
_OUTCOMES = {True: "success", False: "failure"}


def components(info: Any) -> dict[str, float]:
    """Parts of the reward by name: the numbers of `info["rewards"]` and of every `info["reward_…"]`."""
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


def scored(info: Any) -> Any:
    """What a reward spec says of the step; None where no spec paid."""
    return info.get(RESULT) if isinstance(info, Mapping) else None


def is_told(info: Any) -> bool:
    """Whether more is told of the reward than a number."""
    if type(info) is dict and not info:  # as most are
        return False
    return bool(components(info)) or scored(info) is not None


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def outcome(info: Any) -> str | None:
    """success or failure, where the info says `is_success` or `success`, true or false; else None."""
    if (type(info) is dict and not info) or not isinstance(info, Mapping):
        return None
    for name in ("is_success", "success"):
        value = info.get(name)
        if isinstance(value, (bool, np.bool_)) or (_is_number(value) and value in (0, 1)):
            return _OUTCOMES[bool(value)]
    return None


def of_one(infos: Any, index: int) -> Mapping[Any, Any]:
    """What a vector environment's infos say about one of its environments."""
    if isinstance(infos, Mapping):
        return _picked(infos, index) if infos else infos
    if isinstance(infos, (list, tuple)) and isinstance(infos[index], Mapping):  # as DictInfoToList gives them
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
