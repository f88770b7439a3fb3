"""Numbers over time: means of bins of episodes in order of start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mttp.reading.episode_figures import EpisodeFigures
from mttp.viewing.blocks import axis, lines, series

__all__ = ["by_run", "episode_curve", "numbers"]

_BINS = 40
_FEWEST_IN_BIN = 5
_Z = 1.96
_MOST_RUNS = 8
"""Largest number of runs that have a curve of their own; more of them are drawn as one."""


def numbers(
    episodes: Sequence[EpisodeFigures], of: Callable[[EpisodeFigures], float | None]
) -> np.ndarray[Any, Any]:
    """A value for each episode, shape [episodes]; NaN where it is missing or not finite."""
    found = np.array([*map(of, episodes)], float)  # None becomes NaN
    found[~np.isfinite(found)] = np.nan
    return found


def by_run(episodes: Sequence[EpisodeFigures], names: dict[str, str]) -> dict[str, list[EpisodeFigures]]:
    """The episodes of each run by its name, else its id; of more than a few runs all together."""
    found: dict[str, list[EpisodeFigures]] = {}
    for one in episodes:
        found.setdefault(one.run, []).append(one)
    if len(found) > _MOST_RUNS:
        return {f"{len(found)} runs": [*episodes]}
    labels = [names.get(run) or run or "run" for run in found]
    unique = len({*labels}) == len(labels)
    return {
        label if unique else f"{label} {run[:8]}": one
        for label, (run, one) in zip(labels, found.items(), strict=True)
    }


def episode_curve(
    title: str,
    label: str,
    sides: dict[str, Sequence[EpisodeFigures]],
    measures: dict[str, Callable[[EpisodeFigures], float | None]],
) -> dict[str, Any] | None:
    """
    A chart of one or several measures over the episodes of each side, in bins of equal numbers of episodes.

    Bands are 1.96 standard errors of the mean around the mean of each bin.
    """
    curves = [
        _curve(" ".join(filter(None, (side if len(sides) > 1 else "", name))) or label, numbers(episodes, of))
        for side, episodes in sides.items()
        for name, of in measures.items()
    ]
    sizes = {_bin_size(len(episodes)) for episodes in sides.values()}
    bins = f"{min(sizes):,}" if len(sizes) == 1 else f"{min(sizes):,} to {max(sizes):,}"
    note = f"Mean of each {bins} episodes in order of start; the band is 1.96 standard errors of this mean."
    if sizes == {1}:
        note = "Each point is an episode, in order of start."
    return lines(title, axis("episode"), axis(label), curves, note)


def _bin_size(count: int) -> int:
    """Episodes in a bin: one if there are few episodes, else enough for a standard error."""
    return 1 if count <= _BINS else max(_FEWEST_IN_BIN, math.ceil(count / _BINS))


def _curve(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    size = _bin_size(len(values))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    known = [part[~np.isnan(part)] for part in parts]
    means = [float(part.mean()) if len(part) else math.nan for part in known]
    errors = [float(part.std(ddof=1)) / math.sqrt(len(part)) if len(part) > 1 else math.nan for part in known]
    places = [min((place + 0.5) * size, len(values)) for place in range(len(parts))]
    has_band = size > 1
    return series(
        name,
        places,
        means,
        low=[mean - _Z * error for mean, error in zip(means, errors, strict=True)] if has_band else None,
        high=[mean + _Z * error for mean, error in zip(means, errors, strict=True)] if has_band else None,
        dots=size == 1,
    )
