"""Charts of learning curves over episodes, environment steps, updates and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        Return the chart of a number, or of several that share an axis: their columns by the names of curves.

        Several numbers of several runs have a chart each; what never changes has none.
        """
        made = [self._chart(title, label, names, of_updates)]
        if (
            len(names) > 1
            and made[0] is not None
            and self._has_several(next(iter(names.values())), of_updates)
        ):
            made = [
                self._chart(f"{title}: {name}", label, {name: column}, of_updates)
                for name, column in names.items()
            ]
        return [block for block in made if block is not None]

    def _has_several(self, column: str, of_updates: bool) -> bool:
        return len(self._curves(column, "episodes", of_updates)) > 1

    def _chart(
        self, title: str, label: str, names: Mapping[str, str], of_updates: bool
    ) -> dict[str, Any] | None:
        first: Axis = "updates" if of_updates else "episodes"
        by_axis: dict[Axis, list[Curve]] = {}
        for axis in get_args(Axis):
            by_axis[axis] = [
                replace(curve, name=name if len(names) > 1 else curve.name)
                for name, column in names.items()
                for curve in self._curves(column, axis, of_updates)
            ]
        curves = Curves(metric=title, axis=first, curves=tuple(by_axis[first]))
        if curves.is_constant:
            self._constant += [f"{label} = {value:.4g}" for value in _known(curves.curves)[:1]]
            return None
        views = [
            _view(axis, by_axis[axis]) for axis in (first, *(other for other in by_axis if other != first))
        ]
        block = lines(title, axis_of(_AXES[first]), axis_of(label), views[0]["series"], views[0]["note"])
        return block and {**block, "views": views}

    def _curves(self, column: str, axis: Axis, of_updates: bool) -> list[Curve]:
        made: list[Curve] = []
        for episodes, updates, timeline, labels in self._sides:
            columns = updates if of_updates else episodes
            if column in columns:
                values: Floats = columns[column].astype(float)
                values = np.where(np.isfinite(values), values, np.nan)
                made += timeline.curves(column, values, labels, axis=axis, of_updates=of_updates).curves
        return [curve for curve in made if curve.x][:_MOST_CURVES]


def _known(curves: Iterable[Curve]) -> list[float]:
    return [value for curve in curves for value in curve.values if not np.isnan(value)]


def _view(axis: Axis, curves: Sequence[Curve]) -> dict[str, Any]:
    """Return the curves over one axis."""
    drawn = [
        series(
            "" if len(curves) == 1 else curve.name,
            curve.x,
            curve.values,
            low=curve.low if max(curve.n) > 1 else None,
            high=curve.high if max(curve.n) > 1 else None,
            dots=len(curve.x) < 50,
        )
        for curve in curves
    ]
    return {"axis": axis, "x": axis_of(_AXES[axis]), "series": drawn, "note": _note(curves)}


def _note(curves: Sequence[Curve]) -> str:
    methods = dict.fromkeys(curve.method for curve in curves)
    if len(methods) == 1:
        described = next(iter(methods))
    else:
        described = "; ".join(f"{curve.name}: {curve.method}" for curve in curves)
    missing = sum(curve.missing for curve in curves)
    without = f" {missing:,} values are missing and in no mean." if missing else ""
    return f"A point is the mean of up to a fiftieth of the axis in each run; {described}.{without}"
