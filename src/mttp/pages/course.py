"""An episode over its steps as blocks: curves, actions, frames, and a timeline of its spans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mttp.model.episodes import Episode, Step
from mttp.model.scorings import Reward
from mttp.pages.blocks import Block, note
from mttp.pages.messages import parts
from mttp.reading.jsonable import jsonable

__all__ = ["course", "timeline"]

_MOST_CURVES: Final = 32
"""Largest number of coordinates of an observation, and of an action, that are drawn as curves."""
_MOST_SPANS: Final = 500
"""Largest number of spans of a timeline."""


def timeline(episode: Episode) -> Block | None:
    """Return the first spans in order of start; times are milliseconds since the start of the episode."""
    origin = episode.start_time
    if origin is None:
        return None
    spans = [_bar("episode", "episode", 0, episode, origin, None)]
    for place, step in enumerate(episode.steps[:_MOST_SPANS]):
        spans.append(_bar(f"step {step.index}", "step", 1, step, origin, place))
        spans += [_bar(call.name or call.operation, "call", 2, call, origin, place) for call in step.calls]
        spans += _scoring_bars(step.rewards, 2, origin, place)
    spans += _scoring_bars(episode.rewards, 1, origin, None)
    known = sorted(filter(None, spans), key=lambda span: (span["start"], span["depth"]))[:_MOST_SPANS]
    return {"type": "timeline", "spans": known} if len(known) > 1 else None


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
    return {
        "name": name,
        "kind": kind,
        "depth": depth,
        "start": round((value.start_time - origin) / 1e6, 3),
        "duration": 0.0 if value.end_time is None else round((value.end_time - value.start_time) / 1e6, 3),
        "error": getattr(value, "error_type", None) is not None or getattr(value, "status", "") == "error",
        "step": step,
    }


def course(episode: Episode) -> Iterator[Block | None]:
    """Yield curves over the steps, then discrete actions and frames; nothing for fewer than two steps."""
    steps = episode.steps
    if len(steps) < 2:
        return
    numbers = ("reward", "value_estimate", "logprob")
    curves = [
        {"name": name, "values": [jsonable(getattr(step, name)) for step in steps]}
        for name in numbers
        if any(getattr(step, name) is not None for step in steps)
    ]
    actions = _discrete_actions(steps)
    sides = {"observation": [step.observation for step in steps]}
    sides |= {} if actions else {"action": [step.action for step in steps]}
    left_out = 0
    for name, contents in sides.items():
        read = [dict(_coordinates(name, value)) for value in contents]
        names = [*dict.fromkeys(key for coordinates in read for key in coordinates)]
        left_out += max(len(names) - _MOST_CURVES, 0)
        curves += [
            {"name": key, "values": [_at(coordinates.get(key)) for coordinates in read]}
            for key in names[:_MOST_CURVES]
        ]
    yield {"type": "curves", "items": curves} if curves else None
    yield note(f"{left_out:,} more coordinates are not drawn.") if left_out else None
    yield {"type": "strip", "actions": actions} if actions else None
    places = [place for place, step in enumerate(steps) if step.frame is not None or _is_frame(step)]
    yield {"type": "film", "places": places} if len(places) > 1 else None


def _is_frame(step: Step) -> bool:
    return isinstance(step.observation, np.ndarray) and parts(step.observation)[0]["type"] == "picture"


def _coordinates(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a vector, or of the vectors of a mapping, by their names."""
    if isinstance(value, Mapping) and all(isinstance(item, np.ndarray) for item in value.values()):
        for key, item in value.items():
            yield from _coordinates(f"{name} {key}", item)
    elif isinstance(value, np.ndarray) and value.ndim <= 1 and value.dtype.kind in "fiub":
        yield from ((f"{name} {place}", float(item)) for place, item in enumerate(value.reshape(-1)))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield f"{name} 0", float(value)


def _at(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")  # a curve of a few pixels needs no more digits


def _discrete_actions(steps: Sequence[Step]) -> list[int | None] | None:
    """Return discrete actions by step; None if an action is no integer, or there is none."""
    actions = [_discrete(step.action) for step in steps]
    is_discrete = all(
        action is not None or step.action is None for action, step in zip(actions, steps, strict=True)
    )
    return actions if is_discrete and any(action is not None for action in actions) else None


def _discrete(action: Any) -> int | None:
    if isinstance(action, np.ndarray) and action.size == 1 and action.dtype.kind in "iu":
        return int(action.reshape(-1)[0])
    return action if isinstance(action, int) and not isinstance(action, bool) else None
