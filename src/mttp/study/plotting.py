"""The plots of a comparison, effects with their intervals, and of curves with their bands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mttp.reading.drawing import COLOURS, GREY, axes, draw_curve, label, show_legend, show_message

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mttp.model.statistics.metric_comparison import MetricComparison
    from mttp.study.comparison import Comparison
    from mttp.study.learning_curves import Curves

_MARKS = {
    "better": (COLOURS[0], "^"),
    "worse": (COLOURS[1], "v"),
    "equivalent": (COLOURS[2], "s"),
    "inconclusive": (GREY, "o"),
}
"""Colour and marker of each verdict, so that it can be read without colours."""
_AXES = {
    "episodes": "episodes",
    "steps": "environment steps",
    "updates": "policy updates",
    "time": "seconds since the start of the run",
}
_STYLES = ("-", "--", ":", "-.")
_WIDTH, _ROW_HEIGHT, _FRAME_HEIGHT = 7.5, 0.45, 1.1


def plot_comparison(comparison: Comparison, ax: Axes | None) -> Axes:
    """Draw the effect of each metric and slice on `ax`, by default a new figure, and return the axes."""
    rows = [(metric.name, metric) for metric in comparison.metrics]
    rows += [(f"{rows[0][0]}, {name}", metric) for name, metric in comparison.slices.items()]
    is_relative = len(comparison.metrics) > 1
    ax = axes(ax, size=(_WIDTH, _FRAME_HEIGHT + _ROW_HEIGHT * len(rows)))
    ax.axvline(0, color="black", linewidth=0.8, zorder=1)
    for place, (_, metric) in enumerate(rows):
        _draw_row(ax, place, metric, _scale(metric) if is_relative else 1.0)
    ax.set_yticks(range(len(rows)), [label(name) for name, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", integer=False)
    unit = f"share of the mean of {label(comparison.base)}" if is_relative else label(rows[0][0])
    correction = "; verdicts below the first corrected by Holm" if len(rows) > 1 else ""
    ax.set_xlabel(f"effect with {rows[0][1].confidence:.0%} interval ({unit}){correction}")
    title = f"{label(comparison.candidate)} against {label(comparison.base)}: {comparison.verdict}"
    ax.set_title(title, loc="left", fontsize="small", color=GREY)
    return ax


def _scale(metric: MetricComparison) -> float | None:
    """The factor that makes a share of the base of an effect; None where the base is zero or unknown."""
    factor = 1 / abs(metric.base) if metric.base else None
    return factor if factor is not None and math.isfinite(factor) else None


def _draw_row(ax: Axes, place: int, metric: MetricComparison, scale: float | None) -> None:
    colour, marker = _MARKS[metric.verdict]
    if scale is not None and metric.interval is not None:
        low, high = (side * scale for side in metric.interval)
        ax.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
    if scale is not None and metric.effect is not None:
        ax.plot(metric.effect * scale, place, marker, color=colour, markersize=6, zorder=3)
    ax.annotate(
        f"{_numbers(metric)}\n{label(metric.reason or metric.method, limit=90)}",
        (1.02, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize="x-small",
        color=colour,
        annotation_clip=False,
    )


def _numbers(metric: MetricComparison) -> str:
    effect = "no effect known" if metric.effect is None else f"{metric.effect:+.3g}"
    interval = "" if metric.interval is None else " [{:+.3g}, {:+.3g}]".format(*metric.interval)
    return f"{effect}{interval}, {metric.verdict}, n = {metric.n[0]:,} and {metric.n[1]:,}"


def plot_curves(curves: Curves, ax: Axes | None) -> Axes:
    """Draw a line and its band for each curve on `ax`, by default a new figure, and return the axes."""
    ax = axes(ax)
    ax.set(xlabel=_AXES[curves.axis], ylabel=label(curves.metric))
    if not any(curve.x for curve in curves.curves):
        return show_message(ax, f"no {label(curves.metric)} is recorded")
    methods = sorted({curve.method for curve in curves.curves})
    if len(methods) == 1:
        ax.set_title(methods[0], loc="left", fontsize="small", color=GREY)
    for place, curve in enumerate(curves.curves):
        style, colour = divmod(place, len(COLOURS))
        details = [curve.method] if len(methods) > 1 else []
        if curve.missing:
            details.append(f"{curve.missing:,} without a value")
        name = f"{label(curve.name)} ({'; '.join(details)})" if details else label(curve.name)
        draw_curve(
            ax,
            np.array(curve.x),
            *(np.array(side) for side in (curve.values, curve.low, curve.high)),
            colour=COLOURS[colour],
            style=_STYLES[style % len(_STYLES)],
            name=name,
        )
    _draw_marks(ax, curves)
    show_legend(ax)
    return ax


def _draw_marks(ax: Axes, curves: Curves) -> None:
    """Draw a line at each mark: findings with their names, versions of the policy with theirs below."""
    colours = {
        run: COLOURS[place % len(COLOURS)] for place, curve in enumerate(curves.curves) for run in curve.runs
    }
    for mark in curves.marks:
        is_finding = mark.kind == "finding"
        x, colour = mark.places[curves.axis], colours.get(mark.run, GREY)
        ax.axvline(x, color=colour, linewidth=0.8, linestyle="-" if is_finding else ":", zorder=1)
        ax.annotate(
            label(mark.name),
            (x, 1.0 if is_finding else 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2 if is_finding else 2),
            textcoords="offset points",
            rotation=90,
            va="top" if is_finding else "bottom",
            fontsize="xx-small",
            color=colour,
        )
