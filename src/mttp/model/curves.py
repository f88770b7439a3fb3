"""Curves of training: the numbers of an episode and of an update, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mttp.model.counting import is_counted, is_return_counted
from mttp.model.declarations import table
from mttp.model.episodes import Episode, Update

__all__ = [
    "CURVE_ADDRESSES",
    "UPDATE_NUMBERS",
    "episode_curves",
    "finite",
    "points_of_update",
    "update_curves",
]

CURVE_ADDRESSES = ("tensorboard://", "wandb://")
"""Prefixes of the addresses of tools that draw curves."""

UPDATE_NUMBERS = tuple(field.name for field in table(Update) if field.declared == "float")
"""The fields of an update that are measured, such as its losses."""
_OUTCOMES = {"success": 1.0, "failure": 0.0}
_VERDICTS = {"pass": 1.0, "fail": 0.0}


def episode_curves(episode: Episode) -> dict[str, float]:
    """
    Return the finite numbers of an episode by name.

    `episode/return`, `episode/length` (steps), `episode/success` (1 or 0, by the outcome, else by the
    reward's verdict), `episode/grader_errors` (failed scorings and components of the reward), and
    `component/NAME` for each component of the reward. A missing number has no name in the result; of an
    episode that did not finish, only the grader errors have one.
    """
    reward = episode.reward
    errors = [reward.status, *reward.component_statuses.values()].count("error")
    success = _OUTCOMES.get(episode.outcome, _VERDICTS.get(reward.verdict or ""))
    has_return = is_return_counted(episode.return_, reward.value, reward.status)
    numbers = {
        "episode/return": episode.return_ if has_return else None,
        "episode/length": float(episode.length),
        "episode/success": success,
        **{f"component/{name}": value for name, value in reward.components.items()},
    }
    grader_errors = None if reward.status == "missing" else float(errors)
    return finite({**(numbers if is_counted(episode.status) else {}), "episode/grader_errors": grader_errors})


def update_curves(update: Update) -> dict[str, float]:
    """
    Return the finite numbers of an update by name.

    `update/NAME` for each measured field, such as `update/loss`, and for each metric of the user;
    `update/not_finite` is the number of those that are NaN or infinite, if there are any.
    """
    return points_of_update({name: getattr(update, name) for name in UPDATE_NUMBERS}, update.metrics)


def points_of_update(
    numbers: Mapping[str, float | None], metrics: Mapping[str, float | None]
) -> dict[str, float]:
    """Return what `update_curves` does, of the measured fields by name and the metrics of the user."""
    recorded = {f"update/{name}": value for name, value in metrics.items()}
    recorded |= {f"update/{name}": numbers[name] for name in UPDATE_NUMBERS}
    points = finite(recorded)
    invalid = sum(value is not None for value in recorded.values()) - len(points)
    return {**points, "update/not_finite": float(invalid)} if invalid else points


def finite(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are finite numbers, as floats."""
    return {
        name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)
    }
