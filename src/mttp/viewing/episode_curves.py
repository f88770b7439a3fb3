"""An episode over time: its timeline, curves over its steps, and a strip of its actions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mttp.model.episodes import Episode, Step
from mttp.model.scorings import Reward
from mttp.reading.jsonable import jsonable

__all__ = ["action_strip", "curves", "seconds_between", "timeline"]

_MOST_CURVES = 8
"""Largest number of coordinates of an observation that are drawn as curves."""
_MOST_SPANS = 500
"""Largest number of spans of a timeline."""


def seconds_between(start: int | None, end: int | None) -> float | None:
    """Seconds between two times in nanoseconds; None if one is unknown."""
    return None if start is None or end is None else (end - start) / 1e9


def timeline(episode: Episode) -> list[dict[str, Any]]:
    """The first spans in order of start; times are milliseconds since the start of the episode."""
    origin = episode.start_time
    if origin is None:
        return []
    spans = [_bar("episode", "episode", 0, episode, origin, None)]
    for place, step in enumerate(episode.steps[:_MOST_SPANS]):
        spans.append(_bar(f"step {step.index}", "step", 1, step, origin, place))
        spans += [_bar(one.name or one.operation, "call", 2, one, origin, place) for one in step.calls]
        spans += _scoring_bars(step.rewards, 2, origin, place)
    spans += _scoring_bars(episode.rewards, 1, origin, None)
    known = [span for span in spans if span is not None]
    return sorted(known, key=lambda span: (span["start"], span["depth"]))[:_MOST_SPANS]


def _scoring_bars(
    rewards: Iterable[Reward], depth: int, origin: int, step: int | None
) -> Iterator[dict[str, Any] | None]:
    for reward in rewards:
        yield _bar(reward.grader or "reward", "reward", depth, reward, origin, step)
        for grade in reward.grades:
            yield _bar(grade.name, "grade", depth + 1, grade, origin, step)


def _bar(
    name: str, kind: str, depth: int, value: Any, origin: int, step: int | None
) -> dict[str, Any] | None:
    if value.start_time is None:
        return None
    seconds = seconds_between(value.start_time, value.end_time)
    return {
        "name": name,
        "kind": kind,
        "depth": depth,
        "start": round((value.start_time - origin) / 1e6, 3),
        "duration": 0.0 if seconds is None else round(1e3 * seconds, 3),
        "error": getattr(value, "error_type", None) is not None or getattr(value, "status", "") == "error",
        "step": step,
    }


def curves(episode: Episode) -> list[dict[str, Any]]:
    """Reward and value estimate over the steps, and the coordinates of small array observations."""
    steps = episode.steps
    found = [
        {"name": name, "values": [jsonable(getattr(step, name)) for step in steps]}
        for name in ("reward", "value_estimate", "logprob")
        if any(getattr(step, name) is not None for step in steps)
    ]
    observed = [_coordinates(step.observation) for step in steps]
    width = max(map(len, observed), default=0)
    if 0 < width <= _MOST_CURVES:
        found += [
            {"name": f"observation {place}", "values": [_at(one, place) for one in observed]}
            for place in range(width)
        ]
    return found if len(steps) > 1 else []


def _coordinates(observation: Any) -> list[float]:
    if isinstance(observation, np.ndarray) and observation.ndim <= 1 and observation.dtype.kind in "fiub":
        return [float(value) for value in observation.reshape(-1)[: _MOST_CURVES + 1]]
    return [float(observation)] if _is_number(observation) else []


def _at(values: Sequence[float], place: int) -> float | None:
    if place >= len(values) or not math.isfinite(values[place]):
        return None
    return float(f"{values[place]:.5g}")  # a curve of a few pixels needs no more digits


def action_strip(steps: Sequence[Step]) -> list[int | None] | None:
    """Discrete actions by step; None if an action is no integer, or there are fewer than two steps."""
    actions = [_discrete(step.action) for step in steps]
    is_strip = len(steps) > 1 and any(one is not None for one in actions)
    is_discrete = all(
        one is not None or step.action is None for one, step in zip(actions, steps, strict=True)
    )
    return actions if is_strip and is_discrete else None


def _discrete(action: Any) -> int | None:
    if isinstance(action, np.ndarray) and action.size == 1 and action.dtype.kind in "iu":
        return int(action.reshape(-1)[0])
    return action if isinstance(action, int) and not isinstance(action, bool) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
