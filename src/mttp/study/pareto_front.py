"""Which episodes, policy versions or tasks are not dominated over the components of the reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mttp.errors import StudyError
from mttp.model.estimates import mean
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.metrics import metric
from mttp.study.sample import Side, load

_BY = {
    "policy_version": lambda episode: episode.policy_version,
    "episode": lambda episode: episode.trace_id,
    "run": lambda episode: episode.run,
    "task": lambda episode: episode.task,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """One policy version, or another unit, with its mean of each metric."""

    name: str
    values: Mapping[str, float]
    """The mean of each metric over its episodes."""
    n: int
    """Episodes with all metrics."""
    is_dominated: bool
    """Whether another one is at least as good by every metric and better by one."""
    episodes: tuple[str, ...]
    """Trace ids of the first of its episodes."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def pareto(
    source: Side, *, metrics: Sequence[str] = (), by: str = "policy_version"
) -> tuple[ParetoPoint, ...]:
    """
    The units of a recording with their means, those that no other dominates first.

    `metrics` are names as in `mttp.compare`, by default all components of the reward; less is better for
    tokens, times and cost.
    `by` is policy_version, episode, run or task.
    Means are compared as they are, without intervals: a point with few episodes may be there by chance.
    Raises StudyError for an unknown metric or `by`, and where no episode has all metrics and a unit.
    """
    if by not in _BY:
        raise StudyError(f"by={by!r} is not a unit; the units are {', '.join(_BY)}")
    episodes = load(source).episodes
    names = [*metrics] or sorted({f"components.{name}" for row in episodes for name in row.components})
    chosen = [metric(name, episodes) for name in names]
    if any(measure.k is not None for measure in chosen):
        raise StudyError("pass@k and pass^k are numbers of a task: give metrics that each episode has")
    units: dict[str, list[tuple[EpisodeFigures, list[float]]]] = {}
    for episode in episodes:
        values = [each.values([episode])[0] for each in chosen]
        if (unit := _BY[by](episode)) is not None and values and not any(map(math.isnan, values)):
            units.setdefault(unit, []).append((episode, values))
    if not units:
        raise StudyError(f"no episode has a {by} and all of: {', '.join(names) or 'components'}")
    means = {
        unit: [mean(column) or 0.0 for column in zip(*(values for _, values in rows), strict=True)]
        for unit, rows in units.items()
    }
    signs = [-1 if measure.direction < 0 else 1 for measure in chosen]
    signed = {
        unit: [sign * value for sign, value in zip(signs, row, strict=True)] for unit, row in means.items()
    }
    points = [
        ParetoPoint(
            name=unit,
            values=dict(zip(names, means[unit], strict=True)),
            n=len(rows),
            is_dominated=any(_dominates(other, signed[unit]) for other in signed.values()),
            episodes=tuple(episode.trace_id for episode, _ in rows[:5]),
        )
        for unit, rows in units.items()
    ]
    return tuple(sorted(points, key=lambda point: (point.is_dominated, point.name)))


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = [*zip(first, second, strict=True)]
    return all(left >= right for left, right in pairs) and any(left > right for left, right in pairs)
