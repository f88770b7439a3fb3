"""Charts drawn with block characters, for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mttp.pages.words import count, number

__all__ = ["CHARTS", "plot", "sparklines"]

CHARTS: Final = ("lines", "histogram", "scatter")
"""The types of blocks that are charts."""
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_EIGHTHS: Final = len(_BLOCKS) - 1
_WIDTH: Final = 60


def sparklines(block: Mapping[str, Any]) -> Iterator[str]:
    """Yield a chart as one line for each series: its name, its first value, the curve and its last value."""
    for series in block["series"]:
        name = f"{series['name']}  " if series["name"] else ""
        if block["type"] == "scatter":
            yield f"{name}{count(len(series['x']), 'point')}"
        else:
            is_curve = block["type"] == "lines"
            points = series["y"] if is_curve else series["counts"]
            ends = [point for point in points if point is not None] if is_curve else block["edges"]
            yield f"{name}{number(ends[0])} {sparkline(points)} {number(ends[-1])}"


def sparkline(points: Sequence[float | None]) -> str:
    """Return a curve as one line of blocks, scaled from the lowest to the highest point; None is a space."""
    return "".join(
        " " if height is None else _BLOCKS[1 + round(height * (_EIGHTHS - 1))] for height in _heights(points)
    )


def plot(points: Sequence[float | None], *, rows: int = 6) -> list[str]:
    """Return a curve as `rows` lines from top to bottom, each labelled with the value at its upper edge."""
    known = [point for point in points if point is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    filled = [
        None if height is None else 1 + round(height * (rows * _EIGHTHS - 1)) for height in _heights(points)
    ]
    labels = [f"{low + (high - low) * (row + 1) / rows:.4g}" for row in range(rows)]
    width = max(map(len, labels))
    return [
        f"{labels[row]:>{width}} │{''.join(_cell(height, row) for height in filled)}"
        for row in reversed(range(rows))
    ]


def _cell(height: int | None, row: int) -> str:
    return " " if height is None else _BLOCKS[min(max(height - row * _EIGHTHS, 0), _EIGHTHS)]


def _heights(points: Sequence[float | None]) -> list[float | None]:
    """Return as many points as a line has room for, scaled to 0 to 1; all 0.5 for a flat curve."""
    points = points[:: -(-len(points) // _WIDTH) or 1]
    known = [point for point in points if point is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = high - low
    return [None if point is None else (point - low) / span if span else 0.5 for point in points]
