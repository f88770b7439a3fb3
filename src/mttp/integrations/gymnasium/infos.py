"""Reading an environment's infos: reward components, outcome, and the infos of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.codec.plain import Faults, flag, number, scalar_text
from mttp.integrations.faults import fault
from mttp.model.interrupts import raise_interrupt
from mttp.model.nesting import MAX_DEPTH
from mttp.model.reprs import type_name
from mttp.model.results import RESULT
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_step import OpenStep

__all__ = ["components", "flags", "of_one", "outcome", "reward", "scored", "scores"]

_PREFIX = "reward_"
_OUTCOMES = {True: "success", False: "failure"}


def components(info: Any) -> dict[str, float]:
    """Return the reward components: the numbers in `info["rewards"]` and in every `info["reward_…"]`."""
    info = _read(info)
    rewards = {
        name.removeprefix(_PREFIX): value
        for name, value in info.items()
        if issubclass(type(name), str) and name.startswith(_PREFIX)
    }
    rewards |= {
        str(name) if issubclass(type(name), str) else scalar_text(name): value
        for name, value in _read(info.get("rewards")).items()
    }
    numbers = {name: number(value) for name, value in rewards.items() if name and _is_number(value)}
    return {name: value for name, value in numbers.items() if value is not None}


def reward(step: OpenStep, value: Any, info: Any, *, at: int) -> None:
    """Record a step's reward: a reward spec's result, else the value with the components in the info."""
    parts, result = components(info), scored(info)
    if result is not None:
        step.reward(result)
    elif parts:
        step._reward_of(value, parts, at=at)
    else:
        step.reward(value)


def scored(info: Any) -> Any:
    """Return the reward spec's result for the step, or None."""
    return _read(info).get(RESULT)


def flags(terminated: Any, truncated: Any, faults: Faults) -> tuple[bool, bool]:
    """Return what ended an episode; what has no truth value ends nothing, with a fault."""
    if type(terminated) is bool and type(truncated) is bool:  # the usual case
        return terminated, truncated
    return flag("terminated", terminated, faults) or False, flag("truncated", truncated, faults) or False


def scores(value: Any, info: Any, episode: OpenEpisode) -> Mapping[str, Any] | None:
    """Return the reward components as attributes of a step; None if it needs a handle."""
    if type(info) is dict and not info:  # the usual case
        return {}
    parts = components(info)
    if scored(info) is not None:
        return None
    return episode._scores(value, parts) if parts else {}


def _is_number(value: Any) -> bool:
    kind = type(value)  # asks no foreign object for its `__class__`
    if issubclass(kind, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool


def _read(info: Any) -> Mapping[Any, Any]:
    """Return an info as a dict; an empty one for what is no mapping, and, with a fault, if it raises."""
    if type(info) is dict:
        return info
    try:
        return dict(info.items()) if issubclass(type(info), Mapping) else {}
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        fault("info_invalid", f"{type_name(info)} raised {type_name(error)}")
        return {}


def outcome(info: Any) -> str | None:
    """Return "success" or "failure" from the info's `is_success` or `success`, or None without them."""
    info = _read(info)
    if not info:
        return None
    for name in ("is_success", "success"):
        value = info.get(name)
        is_flag = issubclass(type(value), (bool, np.bool_))
        if (is_flag or _is_number(value)) and (succeeded := number(value)) in (0, 1):
            return _OUTCOMES[bool(succeeded)]
    return None


def of_one(infos: Any, index: int) -> Mapping[Any, Any]:
    """Return the info of one environment out of a vector environment's infos."""
    if type(infos) is dict and not infos:  # the usual case
        return infos
    try:
        if issubclass(type(infos), (list, tuple)):  # from DictInfoToList
            return _read(infos[index])
    except Exception as error:  # whatever a foreign object raises when it is asked
        raise_interrupt(error)
        fault("info_invalid", f"{type_name(infos)} raised {type_name(error)}")
    return _picked(_read(infos), index, 0)


def _picked(infos: Mapping[Any, Any], index: int, depth: int) -> dict[Any, Any]:
    info: dict[Any, Any] = {}
    for name, values in infos.items():
        try:
            mask = infos.get(f"_{name}")
            if _is_mask(infos, name) or (mask is not None and not mask[index]):
                continue
            if issubclass(type(values), Mapping):
                info[name] = _picked(_read(values), index, depth + 1) if depth < MAX_DEPTH else {}
            elif issubclass(type(values), (list, tuple)) or getattr(values, "ndim", 0) > 0:
                info[name] = values[index]
        except Exception as error:  # whatever a foreign object raises when it is asked
            raise_interrupt(error)
            fault("info_invalid", f"{scalar_text(name):.80}: {type_name(values)} raised {type_name(error)}")
    return info


def _is_mask(infos: Mapping[Any, Any], name: Any) -> bool:
    return type(name) is str and name.startswith("_") and name[1:] in infos
