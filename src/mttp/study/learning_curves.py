"""Learning curves: a number of episodes or updates over a run, or its mean over the seeds of one setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from mttp.errors import StudyError
from mttp.model.counting import LEFT_OUT
from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.episodes import Run
from mttp.model.statistics.inference import interquartile_mean, scipy_stats
from mttp.otlp.streams import Progress
from mttp.tables import Database
from mttp.tables.database import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mttp.reading.sources import Source
    from mttp.study.curve_marks import CurveMark

Axis: TypeAlias = Literal["episodes", "steps", "updates", "time"]
"""
What the horizontal axis counts, in each run from its start.

episodes; environment steps, those of the episode included; policy updates before the episode, or the index of
an update; seconds.
"""
Center: TypeAlias = Literal["mean", "iqm"]
"""What a curve shows of several runs: their mean, or their interquartile mean (Agarwal et al. 2021)."""
Floats: TypeAlias = "NDArray[np.float64]"
Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

NUMBERS: Final[Mapping[str, tuple[str, str]]] = {
    "return": ("return_counts", '"return"'),
    "reward": ("reward_counts", "reward"),
    "success": ("counts", "success::DOUBLE"),
    "length": ("counts", "length"),
    "tokens": ("counts", "prompt_tokens + completion_tokens"),
    "duration": ("counts", "duration"),
    "cost": ("counts", "cost_usd"),
}
"""The numbers of an episode: the condition under which they count, and the expression."""
_MAPS: Final = ("components", "metrics")
"""Columns of episodes with the user's names: `components.NAME`, `metrics.NAME`."""
_OF_UPDATES: Final = "update."
_BINS: Final = 50
_FEWEST_TO_RESAMPLE: Final = 10
"""The number of runs from which the interval is a bootstrap's; below, Student's t is nearer the truth."""
_RESAMPLES: Final = 2_000
_SEED: Final = 20_260_101
_CONFIDENCE: Final = 0.95
_TABLES_OF_NUMBERS: Final = "FROM episodes JOIN updates USING (run_id)"
_LEFT_OUT = ", ".join(f"'{reason}'" for reason in LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line: a run, or the runs of one name; all sequences have an entry for each point."""

    name: str
    """The name of the runs, with the environment where there are several."""
    runs: tuple[str, ...]
    """The ids of its runs."""
    x: tuple[float, ...]
    """The middle of each bin."""
    values: tuple[float, ...]
    """The mean of the bin in one run, or the centre of the runs' means; NaN without a value."""
    low: tuple[float, ...]
    """The lower end of the 95 % interval; NaN where there is none."""
    high: tuple[float, ...]
    n: tuple[int, ...]
    """The number of runs with a value in the bin."""
    method: str
    """What is drawn, with the method of the interval and the number of runs."""
    missing: int = 0
    """The number of episodes without this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of one number."""

    metric: str
    axis: Axis
    curves: tuple[Curve, ...]
    width: float = 1.0
    """The width of a bin, in units of the axis."""
    marks: tuple[CurveMark, ...] = ()
    """What is marked on the curves."""

    @property
    def is_constant(self) -> bool:
        """Whether all points have one value, so that there is nothing to see."""
        known = {value for curve in self.curves for value in curve.values if not math.isnan(value)}
        return len(known) < 2

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; a missing number is None."""
        return {
            "metric": self.metric,
            "axis": self.axis,
            "width": self.width,
            "marks": [mark.to_dict() for mark in self.marks],
            "curves": [
                {
                    "name": curve.name,
                    "runs": list(curve.runs),
                    "method": curve.method,
                    "missing": curve.missing,
                    "x": list(curve.x),
                    "values": [*map(_or_none, curve.values)],
                    "low": [*map(_or_none, curve.low)],
                    "high": [*map(_or_none, curve.high)],
                    "n": list(curve.n),
                }
                for curve in self.curves
            ],
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """
        Draw a line with its band for each curve on `ax`, by default a new figure, and return the axes.

        Raises MissingExtra if matplotlib is not installed.
        """
        from mttp.study.plotting import plot_curves

        return plot_curves(self, ax)


class Timeline:
    """
    Where the episodes and updates of each run are on each axis.

    Both are columns in order of start: `run_id` and `start_time` (nanoseconds), `env` and `steps` of
    episodes, and `index` of updates, which may be NaN.
    """

    def __init__(self, episodes: Columns, updates: Columns) -> None:
        self._rows = {False: _rows_by_run(episodes), True: _rows_by_run(updates)}
        self._environments = episodes["env"]
        self._places = {
            of_updates: {axis: np.full(len(columns["run_id"]), np.nan) for axis in get_args(Axis)}
            for of_updates, columns in ((False, episodes), (True, updates))
        }
        for run_id in {**self._rows[False], **self._rows[True]}:
            self._place(run_id, episodes, updates)

    def _place(self, run_id: str, episodes: Columns, updates: Columns) -> None:
        """Compute the places of a run's episodes and updates."""
        none = np.zeros(0, int)
        played, updated = self._rows[False].get(run_id, none), self._rows[True].get(run_id, none)
        starts, times = episodes["start_time"][played], updates["start_time"][updated]
        first = min([*starts[:1].tolist(), *times[:1].tolist()])
        steps = np.concatenate([[0.0], np.cumsum(np.nan_to_num(episodes["steps"][played]))])
        indices = updates["index"][updated].astype(float)
        indices = np.where(np.isnan(indices), np.arange(len(updated)), indices)
        before = np.searchsorted(starts, times, side="right")
        after = np.searchsorted(times, starts, side="right")
        of_episodes, of_updates = self._places[False], self._places[True]
        of_episodes["episodes"][played], of_updates["episodes"][updated] = np.arange(len(played)) + 1, before
        of_episodes["steps"][played], of_updates["steps"][updated] = steps[1:], steps[before]
        of_episodes["updates"][played] = np.concatenate([[0.0], indices + 1])[after]
        of_updates["updates"][updated] = indices
        of_episodes["time"][played], of_updates["time"][updated] = (
            (starts - first) / 1e9,
            (times - first) / 1e9,
        )

    def places(self, row: int, *, of_updates: bool = False) -> dict[Axis, float]:
        """Return the place of an episode, or of an update, on each axis."""
        return {axis: float(places[row]) for axis, places in self._places[of_updates].items()}

    def curves(
        self,
        metric: str,
        values: Floats,
        labels: Mapping[str, str],
        *,
        axis: Axis = "episodes",
        center: Center = "mean",
        of_updates: bool = False,
    ) -> Curves:
        """
        Return the curves of values of the episodes, or of the updates, aligned with the columns.

        NaN is a missing value. `labels` are what the runs are called, by id.
        """
        by_label: dict[str, list[_Points]] = {}
        rows_by_run, places = self._rows[of_updates], self._places[of_updates][axis]
        has_several = not of_updates and len({*self._environments.tolist()}) > 1
        for run_id in [*labels, *(run_id for run_id in rows_by_run if run_id not in labels)]:
            rows = rows_by_run.get(run_id, np.zeros(0, int))
            label = labels.get(run_id, run_id[:8])
            if not has_several:
                parts = {label: rows}
            else:
                environments = self._environments[rows]
                names = dict.fromkeys(environments.tolist())
                parts = {f"{label}, {name or 'no environment'}": rows[environments == name] for name in names}
            for name, part in parts.items():
                if len(part):
                    by_label.setdefault(name, []).append(_Points(run_id, places[part], values[part]))
        edges = _edges([each for points in by_label.values() for each in points], axis)
        series = [_curve(label, points, edges, center) for label, points in by_label.items()]
        return Curves(metric=metric, axis=axis, curves=tuple(series), width=float(edges[1] - edges[0]))


@dataclass(frozen=True, slots=True)
class _Points:
    """The values of one run in one environment, and their places."""

    run: str
    x: Floats
    values: Floats


def _rows_by_run(columns: Columns) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each run, in order of their starts."""
    run_ids = columns["run_id"].astype(str)
    return {run_id: np.flatnonzero(run_ids == run_id) for run_id in dict.fromkeys(run_ids.tolist())}


def curves(
    source: Source | Database,
    metric: str = "return",
    *,
    axis: Axis = "episodes",
    by: str = "name",
    center: Center = "mean",
    progress: Progress | None = None,
) -> Curves:
    """
    Return the curves of a number: one for each run, or for the runs that share a name, such as its seeds.

    `metric` is return, reward, success, length, tokens, duration, cost, `components.NAME` or `metrics.NAME`
    of episodes, else a number of updates: loss, kl, entropy, ..., or `update.NAME` for a metric of the user.
    `by` is name, run, or `config.KEY`, a value of the runs' configuration.
    Episodes count as everywhere else, those that do not count and those without a value are in no mean.
    Environments are never pooled: runs of several have a curve for each.

    The axis is divided into at most 50 bins of equal width; a run's value is its mean in the bin. The band of
    several runs is the 95 % interval of their mean: Student's t below 10 runs, percentiles of 2,000
    bootstrap resamples of the runs from 10; that of the interquartile mean is always a bootstrap's. A single
    run has no band, since the variance between runs is unknown.

    Raises StudyError for another metric, axis, `by` or centre, and ReadError if the source can't be read.
    """
    if isinstance(source, Database):
        return curves_of(source, metric, axis=axis, by=by, center=center)
    with Database(source, progress=progress) as database:
        return curves_of(database, metric, axis=axis, by=by, center=center)


def curves_of(
    database: Database, metric: str, *, axis: Axis = "episodes", by: str = "name", center: Center = "mean"
) -> Curves:
    """Return the curves of a number of a database, as `curves` does."""
    if axis not in get_args(Axis):
        raise StudyError(f"axis={axis!r} is not one of {', '.join(get_args(Axis))}")
    if center not in get_args(Center):
        raise StudyError(f"center={center!r} is not one of {', '.join(get_args(Center))}")
    labels = labels_of(database.runs, by)
    of_updates, value = _expression(database, metric)
    episodes, updates = columns_of(database, _alias(value, not of_updates), _alias(value, of_updates))
    values = (updates if of_updates else episodes)["value"].astype(float)
    if metric not in (*NUMBERS, *UPDATE_NUMBERS) and np.isnan(values).all():
        raise _no_number(database, metric)
    timeline = Timeline(episodes, updates)
    return timeline.curves(metric, values, labels, axis=axis, center=center, of_updates=of_updates)


def columns_of(database: Database, of_episodes: str, of_updates: str) -> tuple[Columns, Columns]:
    """Return the columns of a timeline, with these expressions of episodes and of updates."""
    queries = [
        f"SELECT run_id, trace_id, coalesce(env, '') AS env, start_time, length AS steps, {of_episodes} "
        f"FROM episodes WHERE counts_reason NOT IN ({_LEFT_OUT}) ORDER BY start_time, trace_id",
        f'SELECT run_id, start_time, "index"::DOUBLE AS "index", {of_updates} '
        "FROM updates ORDER BY start_time, span_id",
    ]
    database.prepare(*queries)
    episodes, updates = map(database.arrays, queries)
    return episodes, updates


def metrics_of(database: Database) -> list[str]:
    """Return the names of the numbers that a recording has, those of episodes first."""
    database.prepare(_TABLES_OF_NUMBERS)
    counts = ", ".join(f'count({expression}) AS "{name}"' for name, (_, expression) in NUMBERS.items())
    (row,) = database.rows(f"SELECT {counts} FROM episodes")
    present = [name for name, number in row.items() if number]
    for column in _MAPS:
        present += [f"{column}.{name}" for name in _map_keys(database, column, "episodes")]
    counts = ", ".join(f'count("{name}") AS "{name}"' for name in UPDATE_NUMBERS)
    (row,) = database.rows(f"SELECT {counts} FROM updates")
    present += [name for name, number in row.items() if number]
    return present + [f"{_OF_UPDATES}{name}" for name in _map_keys(database, "metrics", "updates")]


def _no_number(database: Database, metric: str) -> StudyError:
    known = ", ".join(metrics_of(database))
    return StudyError(f"there is no number {metric!r}; this recording has {known or 'none'}")


def _map_keys(database: Database, column: str, table: str) -> list[str]:
    query = f"SELECT DISTINCT unnest(map_keys({column})) AS name FROM {table} ORDER BY name"
    return [row["name"] for row in database.rows(query)]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def labels_of(runs: Iterable[Run], by: str) -> dict[str, str]:
    """Return what the runs are called in a legend, by id."""
    processes: dict[str, Run] = {}
    for run in runs:
        processes.setdefault(run.id, run)
    prefix, dot, key = by.partition(".")
    if prefix == "config" and dot and key:
        return {run_id: f"{key}={_configured(run.config, key)}" for run_id, run in processes.items()}
    if by not in ("name", "run"):
        raise StudyError(f"by={by!r} is not name, run or config.KEY")
    if by == "name":
        return {run_id: run.name or run_id[:8] for run_id, run in processes.items()}
    return {run_id: f"{run.name or ''} {run_id[:8]}".strip() for run_id, run in processes.items()}


def _configured(config: Any, key: str) -> Any:
    """Return the value at a dotted key of a configuration; None without one."""
    if isinstance(config, Mapping) and key in config:
        return config[key]
    for part in key.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def _expression(database: Database, metric: str) -> tuple[bool, str]:
    """Return whether a number is one of updates, and the number as SQL."""
    prefix, _, name = metric.partition(".")
    if metric in UPDATE_NUMBERS:
        return True, finite(f'"{metric}"')
    if name and f"{prefix}." == _OF_UPDATES:
        return True, finite(f"metrics[{quoted(name)}]")
    if metric in NUMBERS:
        condition, expression = NUMBERS[metric]
        return False, finite(expression, condition)
    if name and prefix in _MAPS:
        return False, finite(f"{prefix}[{quoted(name)}]", "counts")
    raise _no_number(database, metric)


def _alias(value: str, is_wanted: bool) -> str:
    return f"({value if is_wanted else 'NULL'})::DOUBLE AS value"


def finite(expression: str, condition: str = "true") -> str:
    """Return a number that counts as SQL; null where it does not, or is not finite."""
    return f"CASE WHEN {condition} AND isfinite({expression}) THEN {expression} END"


def _edges(points: Sequence[_Points], axis: Axis) -> Floats:
    """Return the edges of at most 50 bins of equal width; between whole numbers where the axis counts."""
    x = np.concatenate([each.x for each in points]) if points else np.zeros(1)
    low, high = float(x.min()), float(x.max())
    if axis == "time":
        return np.linspace(low, high or 1.0, _BINS + 1)
    width = max(1, math.ceil((high - low + 1) / _BINS))
    return np.arange(low - 0.5, high + width, width)


def _bin_means(points: _Points, edges: Floats) -> Floats:
    """Return the mean of a run's values in each bin; NaN without one."""
    known = ~np.isnan(points.values)
    places = np.clip(np.searchsorted(edges, points.x[known], side="right") - 1, 0, len(edges) - 2)
    numbers = np.bincount(places, minlength=len(edges) - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.bincount(places, points.values[known], minlength=len(edges) - 1) / numbers


def _curve(label: str, points: Sequence[_Points], edges: Floats, center: Center) -> Curve:
    means = np.array([_bin_means(each, edges) for each in points])
    n = (~np.isnan(means)).sum(axis=0)
    rows = [_interval(column[~np.isnan(column)], center) for column in means.T[n > 0]]
    values, low, high = zip(*rows, strict=True) if rows else ((), (), ())
    middles = (edges[:-1] + edges[1:]) / 2
    return Curve(
        name=label,
        runs=tuple(each.run for each in points),
        x=tuple(middles[n > 0].tolist()),
        values=values,
        low=low,
        high=high,
        n=tuple(n[n > 0].tolist()),
        method=_method(n[n > 0].tolist(), center),
        missing=sum(int(np.isnan(each.values).sum()) for each in points),
    )


def _interval(values: Floats, center: Center) -> tuple[float, float, float]:
    """Return the centre of the runs' means and its 95 % interval; NaN for fewer than two runs."""
    of: Callable[[Floats], Floats] = _mean if center == "mean" else interquartile_mean
    middle = float(of(values))
    if len(values) < 2:
        return middle, math.nan, math.nan
    if center == "mean" and len(values) < _FEWEST_TO_RESAMPLE:
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        half = float(scipy_stats().t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * error
        return middle, middle - half, middle + half
    rng = np.random.default_rng(_SEED)
    resamples = values[rng.integers(len(values), size=(_RESAMPLES, len(values)))]
    low, high = np.quantile(of(resamples), [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return middle, float(low), float(high)


def _mean(values: Floats) -> Floats:
    """Return the mean along the last axis."""
    return np.asarray(values.mean(axis=-1))


def _method(n: Sequence[int], center: Center) -> str:
    """Return what is drawn of so many runs at each point, in words."""
    if not n:
        return "no values"
    least, most = min(n), max(n)
    if most < 2:
        return "one run"
    number = f"{most} runs" if least == most else f"{least} to {most} runs"
    resampled = f"bootstrap ({_RESAMPLES:,} resamples of the runs)"
    if center == "iqm":
        return f"interquartile mean of {number}, 95 % {resampled}"
    if most < _FEWEST_TO_RESAMPLE:
        return f"mean of {number}, 95 % t interval"
    mixed = "" if least >= _FEWEST_TO_RESAMPLE else f"; t interval below {_FEWEST_TO_RESAMPLE}"
    return f"mean of {number}, 95 % {resampled}{mixed}"
