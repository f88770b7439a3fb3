"""Parts of plots: axes, colours, running means with their intervals, marks of missing values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import ConfigureError, MissingExtra
from mttp.model.estimates import mean, standard_error, t_interval
from mttp.model.printable import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = [
    "COLOURS",
    "GREY",
    "RunningMean",
    "axes",
    "draw_curve",
    "draw_line",
    "draw_points",
    "draw_ranges",
    "draw_running_mean",
    "label",
    "mark_missing",
    "running_mean",
    "show_legend",
    "show_message",
]

Floats: TypeAlias = "NDArray[np.float64]"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that colour-blind people can tell apart (Okabe and Ito 2008), without the pale yellow."""
GREY = "#767676"
_SIZE = (7.6, 3.4)
_POSITIONS = 200
"""Points of a running mean; more are not visible in a figure."""
_LEAST_WINDOW = 10
_MOST_VECTORS = 2_000
"""Points of a scatter plot that a vector file stores one by one; more are stored as an image."""
_MOST_LABELS = 12
_LARGEST = 1e300
"""Larger numbers overflow when matplotlib computes the limits of an axis."""


def axes(ax: Axes | None, *, size: tuple[float, float] = _SIZE) -> Axes:
    """
    Return `ax`, or the axes of a new figure, without the lines at the top and at the right.

    Raises MissingExtra if matplotlib is not installed, and ConfigureError if `ax` is something else.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes as AnyAxes
    except ImportError as error:
        raise MissingExtra(package="matplotlib", extra="plot", purpose="plotting") from error
    if ax is None:
        _, ax = pyplot.subplots(figsize=size, layout="constrained")
    if not isinstance(ax, AnyAxes):
        raise ConfigureError(f"ax={ax!r:.80} is not the axes of a matplotlib figure")
    ax.spines[["top", "right"]].set_visible(False)
    ax.locator_params(axis="x", integer=True)
    return ax


def label(text: object, *, limit: int = 40) -> str:
    """Return recorded text as a label: on one line, shortened, with no character that starts a formula."""
    line = visible(text)
    line = line if len(line) <= limit else f"{line[: limit - 3]}..."
    # matplotlib leaves labels with a leading underscore out of legends
    return (f" {line}" if line.startswith("_") else line).replace("$", r"\$")


def show_message(ax: Axes, message: str) -> Axes:
    """Write why there is nothing to draw in the middle of the axes, and return them."""
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", va="center", color=GREY, wrap=True)
    ax.set(xticks=[], yticks=[])
    return ax


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMean:
    """Means of the last values before positions of a series, with 95 % intervals by Student's t."""

    window: int
    """The number of values up to each position that its mean is of; missing ones do not count."""
    places: NDArray[np.int64]
    """Positions in the series, ascending."""
    means: Floats
    """The mean at each position; NaN without a known value."""
    low: Floats
    """The lower end of each interval; NaN where the values support none."""
    high: Floats

    @property
    def method(self) -> str:
        """The method, for the title of a plot."""
        return f"running mean of {self.window:,} episodes, 95 % t interval"


def running_mean(values: Floats, window: int | None = None) -> RunningMean:
    """
    Return the running mean of a series in which NaN is a missing value, from the first full window on.

    `window` is by default a twentieth of the series, and 10 or more; all of a shorter series is one window.
    Raises ConfigureError if it is less than 2.
    """
    if window is not None and window < 2:
        raise ConfigureError(f"window={window!r}: give a number of episodes, 2 or more")
    width = window or max(_LEAST_WINDOW, len(values) // 20)
    width = max(1, min(width, len(values)))
    places = np.unique(np.linspace(width - 1, len(values) - 1, _POSITIONS).round().astype(int))
    rows = [_mean_of(values[max(0, place - width + 1) : place + 1]) for place in places]
    means, low, high = np.array(rows, dtype=float).reshape(-1, 3).T
    return RunningMean(window=width, places=places, means=means, low=low, high=high)


def _mean_of(values: Floats) -> tuple[float, float, float]:
    known = values[np.isfinite(values)].tolist()
    center = mean(known)
    if center is None:
        return math.nan, math.nan, math.nan
    interval = t_interval(center, standard_error(known), len(known))
    return (center, *(interval or (math.nan, math.nan)))


def draw_running_mean(
    ax: Axes, found: RunningMean, *, colour: str, style: str = "-", name: str | None = None
) -> None:
    """Draw the means as a line over a band; positions count from 1."""
    draw_curve(
        ax, found.places + 1, found.means, found.low, found.high, colour=colour, style=style, name=name
    )


def draw_curve(
    ax: Axes,
    x: NDArray[Any],
    values: Floats,
    low: Floats,
    high: Floats,
    *,
    colour: str,
    style: str = "-",
    name: str | None = None,
) -> None:
    """Draw values as a line over the band from `low` to `high`."""
    marker = "o" if len(x) == 1 else ""
    options: dict[str, Any] = {"color": colour, "linewidth": 1.6, "label": name, "zorder": 3}
    ax.plot(x, _drawable(values), style, marker=marker, markersize=4, **options)
    ax.fill_between(x, _drawable(low), _drawable(high), color=colour, alpha=0.2, linewidth=0, zorder=2)


def draw_points(
    ax: Axes, x: Iterable[float], values: Floats, *, colour: str, name: str | None = None, **style: Any
) -> None:
    """Draw single values faintly."""
    options = {"s": 8, "alpha": _alpha(len(values)), "linewidths": 0, "zorder": 1, **style}
    ax.scatter(
        np.asarray(x), _drawable(values), color=colour, label=name, rasterized=len(values) > _MOST_VECTORS,
        **options,
    )  # fmt: skip


def draw_line(ax: Axes, x: Sequence[float], values: Floats, *, colour: str, name: str | None = None) -> None:
    """Draw values as a line, with gaps where they are missing, and a dot for each if there are few."""
    marker = "." if len(values) <= _POSITIONS else ""
    ax.plot(x, _drawable(values), "-", marker=marker, color=colour, linewidth=1.6, label=name, zorder=3)


def draw_ranges(ax: Axes, x: Sequence[float], sets: Sequence[Floats], *, colour: str, name: str) -> None:
    """Draw a line from the minimum to the maximum of each set of values, and a dot at its mean."""
    if not len(x):
        return
    low, high = (_drawable(np.array([of(values) for values in sets])) for of in (np.min, np.max))
    means = _drawable(np.array([mean(values.tolist()) for values in sets], dtype=float))
    is_image = len(x) > _MOST_VECTORS
    ax.vlines(
        x, low, high, color=colour, linewidth=1, alpha=1.5 * _alpha(len(x)), zorder=2, rasterized=is_image
    )
    ax.plot(x, means, "o", color=colour, markersize=3, label=name, zorder=3, rasterized=is_image)


def _drawable(values: Floats) -> Floats:
    """Return the values within the numbers that an axis can show."""
    return np.clip(values, -_LARGEST, _LARGEST)


def _alpha(count: int) -> float:
    """Return how opaque each of so many points is drawn."""
    return max(0.02, min(0.3, 0.3 * _MOST_VECTORS / max(count, 1)))


def mark_missing(
    ax: Axes, x: Sequence[float] | NDArray[np.int64], *, name: str, colour: str, height: float
) -> None:
    """Draw a tick at the bottom for each missing value, and its kind and number in the legend."""
    if len(x):
        ax.plot(
            x,
            np.full(len(x), height),
            "|",
            transform=ax.get_xaxis_transform(),
            color=colour,
            markersize=7,
            label=f"{name} (n = {len(x):,})",
            clip_on=False,
            zorder=4,
        )


def show_legend(ax: Axes) -> None:
    """Show a legend beside the axes, where it hides nothing, if it has few enough entries."""
    handles, labels = ax.get_legend_handles_labels()
    if not 0 < len(handles) <= _MOST_LABELS:
        return
    legend = ax.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small"
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(max(0.5, handle.get_alpha() or 1.0))
