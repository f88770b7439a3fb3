"""Charts of learning curves over episodes, environment steps, updates and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

import numpy as np

from mttp.model.episodes import Run
from mttp.pages.blocks import axis as axis_of
from mttp.pages.blocks import lines, note, series
from mttp.study.learning_curves import Axis, Curve, Curves, Timeline, labels_of
from mttp.viewing.figures import Figures, Floats

__all__ = ["CurveCharts"]

_MOST_CURVES: Final = 12
"""Largest number of curves of a chart."""
_FEWEST_WITHOUT_DOTS: Final = 50
_AXES: Final[Mapping[str, str]] = {
    "episodes": "episode",
    "steps": "environment steps",
    "updates": "update",
    "time": "seconds since the start of the run",
}
_NO_UPDATES: Final = {"run_id": np.array([], str), "start_time": np.array([]), "index": np.array([])}


class CurveCharts:
    """
    The curves of a recording, those of its baseline beside them: one for each run, or for the runs of a name.

    `updates` are the numbers of updates in order of start, by column.
    """

    def __init__(
        self, episodes: Figures, updates: Figures, runs: Sequence[Run], *, baseline: Figures | None = None
    ) -> None:
        self._sides = [(episodes, updates, Timeline(episodes, updates), labels_of(runs, "name"))]
        if baseline is not None:
            self._sides[0] = (*self._sides[0][:3], dict.fromkeys(labels_of(runs, "name"), "candidate"))
            of_base = dict.fromkeys(baseline["run_id"].tolist(), "base")
            self._sides.insert(0, (baseline, _NO_UPDATES, Timeline(baseline, _NO_UPDATES), of_base))
        self._constant: list[str] = []

    def constant(self) -> dict[str, Any] | None:
        """Return a note with what has no chart since the last call, because it never changes."""
        names, self._constant = self._constant, []
        return note(f"Without a chart, since it never changes: {', '.join(names)}.") if names else None

    def of(self, title: str, label: str, names: Mapping[str, str], *, of_updates: bool = False) -> list[Any]:
        """
        Return the charts of numbers: one for all, and of several runs one for each number.

        `names` are the columns of the numbers by their names; what never changes has no chart.
        """
        first: Axis = "updates" if of_updates else "episodes"
        axes = [first, *(axis for axis in get_args(Axis) if axis != first)]
        numbers = {
            name: [self._curves(column, axis, of_updates) for axis in axes] for name, column in names.items()
        }
        if all(len(views[0].curves) < 2 for views in numbers.values()):
            charts = {title: numbers}
        else:
            charts = {
                f"{title}: {name}" if len(numbers) > 1 else title: {name: views}
                for name, views in numbers.items()
            }
        return [block for title, shown in charts.items() if (block := self._chart(title, label, shown))]

    def _chart(
        self, title: str, label: str, numbers: Mapping[str, Sequence[Curves]]
    ) -> dict[str, Any] | None:
        """Return a chart of the curves of numbers, each over every axis."""
        constant = {name: views[0] for name, views in numbers.items() if views[0].is_constant}
        for name, curves in constant.items():
            known = [value for curve in curves.curves for value in curve.values if not np.isnan(value)]
            self._constant += [f"{name} = {value:.4g}" for value in known[:1]]
        changing = {name: views for name, views in numbers.items() if name not in constant}
        views = [_view(each) for each in zip(*map(_named, changing, changing.values()), strict=True)]
        if not views:
            return None
        block = lines(title, views[0]["x"], axis_of(label), views[0]["series"], views[0]["note"])
        return block and {**block, "views": views}

    def _curves(self, column: str, axis: Axis, of_updates: bool) -> Curves:
        """Return the curves of all sides."""
        charts: list[Curves] = []
        for episodes, updates, timeline, labels in self._sides:
            columns = updates if of_updates else episodes
            if column in columns:
                values: Floats = columns[column].astype(float)
                values = np.where(np.isfinite(values), values, np.nan)
                charts.append(timeline.curves(column, values, labels, axis=axis, of_updates=of_updates))
        shown = [curve for each in charts for curve in each.curves if curve.x]
        width = max(each.width for each in charts)
        return Curves(metric=column, axis=axis, curves=tuple(shown[:_MOST_CURVES]), width=width)


def _named(name: str, views: Sequence[Curves]) -> list[Curves]:
    """Return curves with the name of their number, if each view has one curve only."""
    return [
        replace(view, curves=tuple(replace(curve, name=name) for curve in view.curves))
        if len(view.curves) == 1
        else view
        for view in views
    ]


def _view(numbers: Sequence[Curves]) -> dict[str, Any]:
    """Return the curves of numbers over one axis."""
    curves, axis = [curve for each in numbers for curve in each.curves], numbers[0].axis
    drawn = [
        series(
            "" if len(curves) == 1 else curve.name,
            curve.x,
            curve.values,
            low=curve.low if max(curve.n) > 1 else None,
            high=curve.high if max(curve.n) > 1 else None,
            dots=len(curve.x) < _FEWEST_WITHOUT_DOTS,
        )
        | {"runs": curve.runs}
        for curve in curves
    ]
    note = _note(curves, axis, max(each.width for each in numbers))
    return {"axis": axis, "x": axis_of(_AXES[axis]), "series": drawn, "note": note}


def _note(curves: Sequence[Curve], axis: Axis, width: float) -> str:
    methods = dict.fromkeys(curve.method for curve in curves)
    described = "; ".join(methods)
    if len(methods) > 1:
        described = "; ".join(f"{curve.name}: {curve.method}" for curve in curves)
    unit = {"episodes": "episodes", "steps": "environment steps", "updates": "updates", "time": "seconds"}[
        axis
    ]
    each = "" if axis != "time" and width == 1 else f"A point is a run's mean over {width:.3g} {unit}. "
    missing = sum(curve.missing for curve in curves)
    without = f" {missing:,} values are missing and in no mean." if missing else ""
    return f"{each}{described[:1].upper()}{described[1:]}.{without}"
