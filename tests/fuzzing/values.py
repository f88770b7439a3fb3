"""Awkward values in nested containers, which bytes select, for conversions and for the calls that record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from awkward import AWKWARD

import mttp
from mttp.codec import content, plain

__all__ = ["record_values", "seeds_of_values"]

_NAMES = [name for name in AWKWARD if name not in ("set of shared tuples", "huge integer")]
_CONVERSIONS: tuple[Callable[[Any], object], ...] = (
    lambda value: plain.plain(value, []),
    lambda value: plain.text(value, []),
    lambda value: plain.to_json(value, []),
    lambda value: plain.listed("what", value, []),
    lambda value: plain.mapped("what", value, []),
    lambda value: plain.flag("what", value, []),
    lambda value: plain.nanoseconds(value, []),
    lambda value: content.encode(content.ACTION, value, [], [], max_bytes=1 << 16),
    plain.number,
    plain.count,
    plain.scalar_text,
)


def seeds_of_values() -> list[bytes]:
    """Each value in each kind of container."""
    return [bytes([container, place, container, 0]) for container in range(6) for place in range(len(_NAMES))]


def record_values(data: bytes) -> None:
    """Give values to each conversion and each recording call, of which none may raise."""
    taken = iter(data)
    for convert in _CONVERSIONS:
        convert(_value(taken, 0))
    with mttp.configure("memory://") as session:
        with mttp.episode(seed=_value(taken, 0), env=_value(taken, 0)) as episode:
            _record(episode, taken)
        mttp.read(session)
    assert "internal_error" not in session.stats.faults, session.stats.faults


def _record(episode: mttp.OpenEpisode, taken: Any) -> None:
    with episode.step() as step:
        step.observation(_value(taken, 0))
        step.action(_value(taken, 0))
        step.set_metadata("fact", _value(taken, 0))
        step.metric("figure", _value(taken, 0))
        step.tokens(ids=_value(taken, 0), logprobs=_value(taken, 0), policy_version=_value(taken, 0))
        step.reward(_value(taken, 0), components=_value(taken, 0))
        with step.tool_call("tool", arguments=_value(taken, 0)) as tool:
            tool.result(_value(taken, 0))
        with step.model_call("model", temperature=_value(taken, 0)) as model:
            model.result(_value(taken, 0))
    episode.final_observation(_value(taken, 0))
    episode.reward(_value(taken, 0), components={"part": _value(taken, 0)})


def _value(taken: Any, depth: int) -> Any:
    """Return the value that the next bytes select."""
    kind, place = next(taken, 0), next(taken, 0)
    leaf = AWKWARD[_NAMES[place % len(_NAMES)]]()
    if depth > 4 or kind % 6 == 0:
        return leaf
    inner = _value(taken, depth + 1)
    if kind % 6 == 4:
        array = np.empty(2, object)
        array[0], array[1] = inner, 1.5
        return array
    return {1: [leaf, inner], 2: {"leaf": leaf, "inner": inner}, 3: (inner, leaf), 5: [inner] * 3}[kind % 6]
