"""The design of a comparison: which values are independent, which are paired, and what they show."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Literal, TypeAlias

import numpy as np

from mttp.errors import StudyError
from mttp.study import inference
from mttp.study.aggregates import RunAggregates, run_aggregates
from mttp.study.comparison import MetricComparison
from mttp.study.inference import Floats, Inference
from mttp.study.metrics import EpisodeMetric
from mttp.study.sample import EpisodeFigures, Sample

__all__ = ["Design", "Window", "by_unit", "check_window"]

Window: TypeAlias = "int | str"
"""
What counts of each training run.

A number: its last episodes. `N updates`: the episodes for its last N updates, and those after them.
`area`: the area under its learning curve.
"""
_UPDATES = re.compile(r"([1-9]\d*) updates?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Which values of both sides are compared."""

    base: Mapping[Any, list[EpisodeFigures]]
    """Episodes by unit: a task, a run, or the episode itself."""
    candidate: Mapping[Any, list[EpisodeFigures]]
    unit: Literal["task", "run", "episode"]
    paired: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, base: Sample, candidate: Sample, window: Window) -> Design:
        """The design that the two sides allow: by run, paired, by task, or by episode."""
        sides = (base, candidate)
        runs = [side.by_run() for side in sides]
        if any(side.is_training for side in sides):
            kept, note = _windowed(runs, window, [side.updates for side in sides])
            few = [] if min(map(len, runs)) >= 2 else ["one run a side proves little: add seeds"]
            return cls(base=kept[0], candidate=kept[1], unit="run", paired=False, notes=(note, *few))
        if min(map(len, runs)) >= 2:
            note = f"{len(runs[0])} and {len(runs[1])} runs: one value per run"
            return cls(base=runs[0], candidate=runs[1], unit="run", paired=False, notes=(note,))
        units = [by_unit(side.episodes) for side in sides]
        if not any(None in found for found in units):
            shared = units[0].keys() & units[1].keys()
            tasked = all(one.task is not None for side in sides for one in side.episodes)
            if len(shared) == len(units[0]) == len(units[1]) or (tasked and shared):
                left = len(units[0]) + len(units[1]) - 2 * len(shared)
                note = f"paired by {'task' if tasked else 'seed'}: {len(shared):,} shared"
                kept = [{unit: found[unit] for unit in sorted(shared)} for found in units]
                notes = (note, *([f"{left:,} that only one side has are left out"] if left else []))
                return cls(base=kept[0], candidate=kept[1], unit="task", paired=True, notes=notes)
            note = "not paired: the sides share no tasks or seeds; clustered by these"
            return cls(base=units[0], candidate=units[1], unit="task", paired=False, notes=(note,))
        alone = [{number: [one] for number, one in enumerate(side.episodes)} for side in sides]
        note = "not paired: the episodes name no task and no seed"
        return cls(base=alone[0], candidate=alone[1], unit="episode", paired=False, notes=(note,))

    def compare(self, chosen: EpisodeMetric, confidence: float, margin: float | None) -> MetricComparison:
        """One metric; its verdict is not corrected yet."""
        sides = [UnitValues.of(chosen, side) for side in (self.base, self.candidate)]
        missing = sides[0].missing, sides[1].missing
        means = self._means(sides)
        reason = self._reason(chosen, sides, means)
        found = None if reason else self._infer(chosen, means, confidence)
        center = [float(np.mean(side)) if len(side) else None for side in means]
        effect = None if None in center else center[1] - center[0]  # type: ignore[operator]  # not None
        return MetricComparison(
            name=chosen.name,
            verdict="inconclusive",
            base=center[0],
            candidate=center[1],
            effect=effect,
            interval=None if found is None else found.interval,
            confidence=confidence,
            p_value=None if found is None else found.p_value,
            p_corrected=None,
            n=(len(sides[0].values) - missing[0], len(sides[1].values) - missing[1]),
            clusters=len(means[0]) if self.paired else (len(means[0]), len(means[1])),
            paired=self.paired,
            method=found.method if found is not None else "none",
            detectable=None if found is None else found.detectable,
            margin=margin,
            missing=missing,
            worst_case=_worst_case(chosen, sides) if any(missing) else None,
            reason=reason or (None if found is None or found.p_value is not None else found.method),
            over_runs=self._aggregates(chosen, confidence) if found is not None else None,
        )

    def _aggregates(self, chosen: EpisodeMetric, confidence: float) -> RunAggregates | None:
        """Values by environment and task, one per run, aggregated where there are several runs."""
        if self.unit != "run" or chosen.k is not None:
            return None
        sides = [_by_task(chosen, side) for side in (self.base, self.candidate)]
        return run_aggregates(*sides, direction=chosen.direction or 1, confidence=confidence)

    def _means(self, sides: Sequence[UnitValues]) -> list[Floats]:
        """The means of the units with a value; of paired units those with a value on both sides."""
        known = [~np.isnan(side.means) for side in sides]
        if self.paired:
            known = [known[0] & known[1]] * 2
        return [side.means[kept] for side, kept in zip(sides, known, strict=True)]

    def _reason(
        self, chosen: EpisodeMetric, sides: Sequence[UnitValues], means: Sequence[Floats]
    ) -> str | None:
        """Why the metric can't be compared."""
        if chosen.k is not None and self.unit != "task":
            return f"{chosen.name} is estimated for each task, and the units here are {self.unit}s"
        for name, side in zip(("base", "candidate"), sides, strict=True):
            if np.isnan(side.means).all():
                few = " or k is larger than the number of samples" if chosen.k is not None else ""
                return f"no {self.unit} of the {name} has a value{few}"
        return None if len(means[0]) else "no task has a value on both sides"

    def _infer(self, chosen: EpisodeMetric, means: Sequence[Floats], confidence: float) -> Inference:
        if self.paired:
            return inference.paired(*means, binary=chosen.binary, confidence=confidence)
        if self.unit == "run":
            return inference.of_runs(*means, confidence=confidence)
        return inference.unpaired(*means, binary=chosen.binary, confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitValues:
    """The values of one metric on one side, unit by unit; NaN where missing."""

    values: Floats
    """One per episode; one per unit for pass@k."""
    sizes: Sequence[int]
    """Number of values of each unit."""
    means: Floats
    """Mean of each unit's values; NaN if it has none."""

    @classmethod
    def of(cls, chosen: EpisodeMetric, side: Mapping[Any, list[EpisodeFigures]]) -> UnitValues:
        """The values of these units."""
        if chosen.k is None:
            sizes = [*map(len, side.values())]
            values = chosen.column(chain.from_iterable(side.values()))
        else:
            sizes = [1] * len(side)
            values = np.array([chosen.values(episodes)[0] for episodes in side.values()], float)
        return cls(values=values, sizes=sizes, means=_unit_means(values, sizes))

    @property
    def missing(self) -> int:
        """Number of missing values."""
        return int(np.isnan(self.values).sum())

    def filled(self, value: float) -> Floats:
        """The mean of each unit if all missing values were `value`."""
        return _unit_means(np.where(np.isnan(self.values), value, self.values), self.sizes)


def _unit_means(values: Floats, sizes: Sequence[int]) -> Floats:
    if len(values) == len(sizes):  # one value each
        return values
    listed = values.tolist()
    ends = [*accumulate(sizes)]
    return np.array([_mean(listed[end - size : end]) for size, end in zip(sizes, ends, strict=True)], float)


def check_window(window: object) -> None:
    """Raise StudyError for a window that is none."""
    is_count = isinstance(window, int) and not isinstance(window, bool) and window >= 1
    if not is_count and not (isinstance(window, str) and (window == "area" or _UPDATES.fullmatch(window))):
        raise StudyError(f"window={window!r}: give a number of episodes from 1 on, 'N updates' or 'area'")


def _windowed(
    runs: Sequence[Mapping[Any, list[EpisodeFigures]]],
    window: Window,
    updates: Sequence[Mapping[Any, Sequence[int]]],
) -> tuple[list[dict[Any, list[EpisodeFigures]]], str]:
    """The episodes of each training run that count, and a note that says which."""
    if isinstance(window, str) and (found := _UPDATES.fullmatch(window)):
        last = int(found[1])
        kept = [
            {run: _since(episodes, times.get(run, ()), last) for run, episodes in side.items()}
            for side, times in zip(runs, updates, strict=True)
        ]
        return kept, f"training runs: the episodes of the last {window} of each run, one value per run"
    if window == "area":
        shortest = min(len(episodes) for side in runs for episodes in side.values())
        kept = [{run: episodes[:shortest] for run, episodes in side.items()} for side in runs]
        note = f"training runs: the area under the curve of the first {shortest:,} episodes of each run"
        return kept, f"{note}, divided by their number; one value per run"
    kept = [{run: episodes[-int(window) :] for run, episodes in side.items()} for side in runs]
    return kept, f"training runs: the last {window} episodes of each run, one value per run"


def _since(episodes: list[EpisodeFigures], updates: Sequence[int], last: int) -> list[EpisodeFigures]:
    """The episodes that started after the update before the last ones."""
    if len(updates) <= last:
        return episodes
    start = updates[-last - 1]
    return [one for one in episodes if one.start_time >= start]


def _by_task(chosen: EpisodeMetric, side: Mapping[Any, list[EpisodeFigures]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for episodes in side.values():
        for (env, task), values in _grouped(chosen, episodes).items():
            if not math.isnan(mean := _mean(values)):
                found.setdefault(f"{env} {task}", []).append(mean)
    return found


def _grouped(
    chosen: EpisodeMetric, episodes: Iterable[EpisodeFigures]
) -> dict[tuple[str, str | None], list[float]]:
    found: dict[tuple[str, str | None], list[float]] = {}
    for one in episodes:
        found.setdefault((one.env, one.task), []).extend(chosen.values([one]))
    return found


def by_unit(episodes: Iterable[EpisodeFigures]) -> dict[Any, list[EpisodeFigures]]:
    """The episodes of each task or seed; under None those that name neither."""
    found: dict[Any, list[EpisodeFigures]] = {}
    for one in episodes:
        found.setdefault(one.unit, []).append(one)
    return found


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _worst_case(chosen: EpisodeMetric, sides: Sequence[UnitValues]) -> float | None:
    """The effect if each missing value were the worst value that was seen."""
    known = np.concatenate([side.values[~np.isnan(side.values)] for side in sides])
    if not len(known):
        return None
    worst = float(known.max() if chosen.direction < 0 else known.min())
    if chosen.name == "success" or chosen.k is not None:
        worst = 0.0
    base, candidate = (_mean(side.filled(worst).tolist()) for side in sides)
    return candidate - base
