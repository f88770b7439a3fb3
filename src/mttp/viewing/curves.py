"""Numbers over time: means of bins of episodes in order of start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mttp.model.statistics.inference import scipy_stats
from mttp.pages.blocks import axis, lines, series
from mttp.viewing.figures import Floats

__all__ = ["by_run", "episode_curve"]

_BINS = 40
_FEWEST_IN_BIN = 5
_Z = 1.96
_MOST_RUNS = 8
"""Largest number of runs that have a curve of their own; more of them are drawn as one."""


def by_run(runs: np.ndarray[Any, Any], names: Mapping[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the rows of each run by its name, else its id; of more than a few runs all together."""
    ids = [*dict.fromkeys(runs.tolist())]
    if not 1 < len(ids) <= _MOST_RUNS:
        return {f"{len(ids)} runs" if len(ids) > 1 else "": np.arange(len(runs))}
    labels = [names.get(run) or run for run in ids]
    unique = len({*labels}) == len(labels)
    return {
        label if unique else f"{label} {run[:8]}": np.flatnonzero(runs == run)
        for label, run in zip(labels, ids, strict=True)
    }


def episode_curve(
    title: str, label: str, curves: Mapping[str, Floats], *, is_share: bool = False
) -> dict[str, Any] | None:
    """
    A chart of values over episodes, one curve each, in bins of equal numbers of episodes.

    Bands are 1.96 standard errors of the mean around the mean of each bin; of values that are 0 or 1,
    Wilson's 95 % intervals of their share.
    """
    drawn = [_curve(name or label, values, is_share) for name, values in curves.items() if len(values)]
    sizes = {_bin_size(len(values)) for values in curves.values() if len(values)}
    if not sizes:
        return None
    bins = f"{min(sizes):,}" if len(sizes) == 1 else f"{min(sizes):,} to {max(sizes):,}"
    band = "the 95 % interval of this share (Wilson)" if is_share else "1.96 standard errors of this mean"
    note = f"{'Share' if is_share else 'Mean'} of each {bins} episodes in order of start; the band is {band}."
    if sizes == {1}:
        note = "Each point is an episode, in order of start."
    return lines(title, axis("episode"), axis(label), drawn, note)


def _bin_size(count: int) -> int:
    """Episodes in a bin: one if there are few episodes, else enough for a standard error."""
    return 1 if count <= _BINS else max(_FEWEST_IN_BIN, math.ceil(count / _BINS))


def _curve(name: str, values: Floats, is_share: bool) -> dict[str, Any]:
    size = _bin_size(len(values))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    known = [part[~np.isnan(part)] for part in parts]
    means = [float(part.mean()) if len(part) else math.nan for part in known]
    places = [min((place + 0.5) * size, len(values)) for place in range(len(parts))]
    bands = [*map(_wilson if is_share else _errors, known)] if size > 1 else None
    low, high = (None, None) if bands is None else zip(*bands, strict=True)
    return series(name, places, means, low=low, high=high, dots=size == 1)


def _errors(values: Floats) -> tuple[float, float]:
    """The mean minus and plus 1.96 standard errors; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    error = _Z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - error, float(values.mean()) + error


def _wilson(values: Floats) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); NaN without values."""
    if not len(values):
        return math.nan, math.nan
    found = scipy_stats().binomtest(int(values.sum()), len(values)).proportion_ci(0.95, "wilson")
    return float(found.low), float(found.high)
