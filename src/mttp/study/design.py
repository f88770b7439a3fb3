"""The design of a comparison: which values are independent, which are paired, and what they show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from mttp.study import inference
from mttp.study.aggregates import RunAggregates, run_aggregates
from mttp.study.comparison import MetricComparison
from mttp.study.inference import Inference
from mttp.study.metrics import EpisodeMetric
from mttp.study.sample import EpisodeFigures, Sample

__all__ = ["Design", "Window", "by_unit"]

Window: TypeAlias = "int | Literal['area']"
"""The last episodes of each training run, or `area`: the area under its learning curve."""


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
            kept, note = _windowed(runs, window)
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
        sides = [_values(chosen, side) for side in (self.base, self.candidate)]
        counted = [[value for values in side.values() for value in values] for side in sides]
        n, missing = (
            (len(counted[0]) - _missing(counted[0]), len(counted[1]) - _missing(counted[1])),
            (_missing(counted[0]), _missing(counted[1])),
        )
        means = [{unit: _mean(values) for unit, values in side.items()} for side in sides]
        means = [{unit: value for unit, value in side.items() if not math.isnan(value)} for side in means]
        reason = self._reason(chosen, means)
        found = None if reason else self._infer(chosen, means, confidence)
        units = sorted(means[0].keys() & means[1].keys()) if self.paired else None
        shown = [[side[unit] for unit in units] if units is not None else [*side.values()] for side in means]
        center = [float(np.mean(side)) if side else None for side in shown]
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
            n=n,
            clusters=len(units) if units is not None else (len(means[0]), len(means[1])),
            paired=self.paired,
            method=found.method if found is not None else "none",
            detectable=None if found is None else found.detectable,
            margin=margin,
            missing=missing,
            worst_case=_worst_case(chosen, sides, paired=self.paired) if any(missing) else None,
            reason=reason or (None if found is None or found.p_value is not None else found.method),
            over_runs=self._aggregates(chosen, confidence) if found is not None else None,
        )

    def _aggregates(self, chosen: EpisodeMetric, confidence: float) -> RunAggregates | None:
        """Values by environment and task, one per run, aggregated where there are several runs."""
        if self.unit != "run" or chosen.k is not None:
            return None
        sides = [_by_task(chosen, side) for side in (self.base, self.candidate)]
        return run_aggregates(*sides, direction=chosen.direction or 1, confidence=confidence)

    def _reason(self, chosen: EpisodeMetric, means: Sequence[Mapping[Any, float]]) -> str | None:
        """Why the metric can't be compared."""
        if chosen.k is not None and self.unit != "task":
            return f"{chosen.name} is estimated for each task, and the units here are {self.unit}s"
        for name, side in zip(("base", "candidate"), means, strict=True):
            if not side:
                few = " or k is larger than the number of samples" if chosen.k is not None else ""
                return f"no {self.unit} of the {name} has a value{few}"
        if self.paired and not means[0].keys() & means[1].keys():
            return "no task has a value on both sides"
        return None

    def _infer(
        self, chosen: EpisodeMetric, means: Sequence[Mapping[Any, float]], confidence: float
    ) -> Inference:
        if self.paired:
            shared = sorted(means[0].keys() & means[1].keys())
            sides = [[side[unit] for unit in shared] for side in means]
            return inference.paired(*sides, binary=chosen.binary, confidence=confidence)
        sides = [[*side.values()] for side in means]
        if self.unit == "run":
            return inference.of_runs(*sides, confidence=confidence)
        return inference.unpaired(*sides, binary=chosen.binary, confidence=confidence)


def _windowed(
    runs: Sequence[Mapping[Any, list[EpisodeFigures]]], window: Window
) -> tuple[list[dict[Any, list[EpisodeFigures]]], str]:
    """The episodes of each training run that count, and a note that says which."""
    if window == "area":
        shortest = min(len(episodes) for side in runs for episodes in side.values())
        kept = [{run: episodes[:shortest] for run, episodes in side.items()} for side in runs]
        note = f"training runs: the area under the curve of the first {shortest:,} episodes of each run"
        return kept, f"{note}, divided by their number; one value per run"
    kept = [{run: episodes[-window:] for run, episodes in side.items()} for side in runs]
    return kept, f"training runs: the last {window} episodes of each run, one value per run"


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


def _values(chosen: EpisodeMetric, side: Mapping[Any, list[EpisodeFigures]]) -> dict[Any, list[float]]:
    return {unit: chosen.values(episodes) for unit, episodes in side.items()}


def _missing(values: Iterable[float]) -> int:
    return sum(map(math.isnan, values))


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _worst_case(
    chosen: EpisodeMetric, sides: Sequence[Mapping[Any, list[float]]], *, paired: bool
) -> float | None:
    known = [value for side in sides for values in side.values() for value in values if not math.isnan(value)]
    if not known:
        return None
    worst = max(known) if chosen.direction < 0 else min(known)
    if chosen.name == "success" or chosen.k is not None:
        worst = 0.0
    filled = [
        {unit: _mean(worst if math.isnan(v) else v for v in values) for unit, values in side.items()}
        for side in sides
    ]
    shared = filled[0].keys() & filled[1].keys() if paired else None
    means = [
        _mean(value for unit, value in side.items() if shared is None or unit in shared) for side in filled
    ]
    return means[1] - means[0]
