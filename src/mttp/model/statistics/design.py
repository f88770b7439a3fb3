"""The design of a comparison: which values are independent, which are paired, and what they show."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from mttp.errors import StudyError
from mttp.model.counting import is_counted
from mttp.model.estimates import mean
from mttp.model.statistics import inference
from mttp.model.statistics.aggregates import RunAggregates, run_aggregates
from mttp.model.statistics.inference import Floats, Inference, ValueRange
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.model.statistics.metrics import EpisodeMetric

if TYPE_CHECKING:
    from mttp.model.figures import EpisodeFigures
    from mttp.study.sample import Sample

__all__ = [
    "ONE_RUN",
    "Design",
    "UnitValues",
    "Window",
    "are_seeds",
    "by_unit",
    "check_window",
    "last_finished",
    "seen_range",
]

Window: TypeAlias = "int | str"
"""
What counts of each training run.

A number: its last episodes. `N updates`: the episodes for its last N updates, and those after them.
`area`: the area under its learning curve.
"""
ONE_RUN = "one run alone is no evidence: add seeds, or record an evaluation of the checkpoint (kind='eval')"
"""Why one training run has no interval."""
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
    lost: tuple[Sequence[int], Sequence[int]] = ((), ())
    """How many samples of each unit a side lacks that it has of others; empty where none is lost."""

    @classmethod
    def of(cls, base: Sample, candidate: Sample, window: Window) -> Design:
        """
        Return the design that the two sides allow: by run, paired, by task, or by episode.

        Training runs, and several runs of the same tasks, are seeds: one value per run.
        Runs of different tasks are parts of one sample, and are compared by task.
        """
        sides = (base, candidate)
        runs = [side.by_run() for side in sides]
        if any(side.is_training for side in sides):
            both, note = _windowed(runs, window, [side.updates for side in sides])
            few = [] if min(map(len, runs)) >= 2 else [ONE_RUN]
            return cls(base=both[0], candidate=both[1], unit="run", paired=False, notes=(note, *few))
        if any(map(are_seeds, runs)):
            note = f"{len(runs[0]):,} and {len(runs[1]):,} runs of the same tasks: one value per run"
            return cls(base=runs[0], candidate=runs[1], unit="run", paired=False, notes=(note,))
        units = [by_unit(side.episodes) for side in sides]
        nameless = [len(side.pop(None, ())) for side in units]
        if all(units):
            notes = _nameless_notes(nameless)
            shared = sorted(units[0].keys() & units[1].keys())
            tasked = any(episode.task is not None for side in sides for episode in side.episodes)
            if len(shared) == len(units[0]) == len(units[1]) or (tasked and shared):
                alone = len(units[0]) + len(units[1]) - 2 * len(shared)
                note = f"paired by {'task' if tasked else 'seed'}: {len(shared):,} shared"
                both = [{unit: side[unit] for unit in shared} for side in units]
                lost = _lost_samples(both, nameless) if tasked else ((), ())
                notes = (
                    note,
                    *([f"{alone:,} that only one side has are left out"] if alone else []),
                    *notes,
                    *_lost_notes(lost),
                )
                return cls(base=both[0], candidate=both[1], unit="task", paired=True, notes=notes, lost=lost)
            note = "not paired: the sides share no tasks or seeds; clustered by these"
            return cls(base=units[0], candidate=units[1], unit="task", paired=False, notes=(note, *notes))
        single = [{number: [episode] for number, episode in enumerate(side.episodes)} for side in sides]
        note = "not paired: the episodes name no task and no seed"
        return cls(base=single[0], candidate=single[1], unit="episode", paired=False, notes=(note,))

    def compare(self, chosen: EpisodeMetric, confidence: float, margin: float | None) -> MetricComparison:
        """Return the comparison of one metric; its verdict is not corrected yet."""
        sides = self.sides(chosen)
        missing = sides[0].missing, sides[1].missing
        means = self.means(sides)
        reason = self._reason(chosen, sides, means)
        result = None if reason else self._infer(chosen, means, confidence)
        center = [float(np.mean(side)) if len(side) else None for side in means]
        effect = None if None in center else center[1] - center[0]  # type: ignore[operator]  # not None
        worst = None
        if any(missing) and result is not None:
            worst = self._worst_case(chosen, sides, result.effect, confidence)
        return MetricComparison(
            name=chosen.name,
            verdict="inconclusive",
            base=center[0],
            candidate=center[1],
            effect=effect,
            interval=None if result is None else result.interval,
            confidence=confidence,
            p_value=None if result is None else result.p_value,
            p_corrected=None,
            n=(len(sides[0].values) - missing[0], len(sides[1].values) - missing[1]),
            clusters=len(means[0]) if self.paired else (len(means[0]), len(means[1])),
            paired=self.paired,
            method=result.method if result is not None else "none",
            detectable=None if result is None else result.detectable,
            margin=margin,
            missing=missing,
            worst_case=None if worst is None else worst.effect,
            worst_case_interval=None if worst is None else worst.interval,
            worst_case_p=None if worst is None else worst.p_value,
            reason=reason or (None if result is None or result.interval is not None else result.method),
            over_runs=self._aggregates(chosen, confidence) if result is not None else None,
        )

    def sides(self, chosen: EpisodeMetric) -> list[UnitValues]:
        """Return the values of the base and of the candidate; samples that are lost are missing."""
        return [
            UnitValues.of(chosen, side, lost)
            for side, lost in zip((self.base, self.candidate), self.lost, strict=True)
        ]

    def _worst_case(
        self, chosen: EpisodeMetric, sides: Sequence[UnitValues], effect: float, confidence: float
    ) -> Inference | None:
        """
        Return the effect with the missing values against it, and the interval over both fillings.

        A missing value is the worst or the best one: of the metric's range, else of those that were seen.
        """
        span = chosen.span or seen_range([side.values for side in sides])
        if span is None:
            return None
        fillings = [
            self._infer(
                chosen,
                self.means([side.filled(value) for side, value in zip(sides, values, strict=True)]),
                confidence,
            )
            for values in (span[::-1], span)  # the lowest and the highest effect
        ]
        against = fillings[0 if effect > 0 else 1]
        intervals = [filling.interval for filling in fillings if filling.interval is not None]
        interval = None
        if len(intervals) == len(fillings):
            interval = min(low for low, _ in intervals), max(high for _, high in intervals)
        return replace(against, interval=interval)

    def _aggregates(self, chosen: EpisodeMetric, confidence: float) -> RunAggregates | None:
        """Values by environment and task, one per run, aggregated where there are several runs."""
        if self.unit != "run" or chosen.k is not None:
            return None
        sides = [_by_task(chosen, side) for side in (self.base, self.candidate)]
        return run_aggregates(*sides, direction=chosen.direction or 1, confidence=confidence)

    def means(self, sides: Sequence[UnitValues]) -> list[Floats]:
        """The means of the units with a value; of paired units those with a value on both sides."""
        known = [~np.isnan(side.means) for side in sides]
        if self.paired:
            known = [known[0] & known[1]] * 2
        return [side.means[is_known] for side, is_known in zip(sides, known, strict=True)]

    def _reason(
        self, chosen: EpisodeMetric, sides: Sequence[UnitValues], means: Sequence[Floats]
    ) -> str | None:
        """Why the metric can't be compared."""
        if chosen.k is not None and self.unit != "task":
            return f"{chosen.name} is estimated for each task, and the units here are {self.unit}s"
        for name, side in zip(("base", "candidate"), sides, strict=True):
            if np.isnan(side.means).all():
                few = " or k is larger than the number of samples" if chosen.k is not None else ""
                return chosen.lacking or f"no {self.unit} of the {name} has a value{few}"
        return None if len(means[0]) else "no task has a value on both sides"

    def _infer(self, chosen: EpisodeMetric, means: Sequence[Floats], confidence: float) -> Inference:
        if self.paired:
            return inference.paired(*means, span=chosen.span, confidence=confidence)
        if self.unit == "run":
            return inference.of_runs(*means, confidence=confidence)
        return inference.unpaired(*means, span=chosen.span, confidence=confidence)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitValues:
    """The values of one metric on one side, unit by unit; NaN where missing."""

    chosen: EpisodeMetric
    values: Floats
    """One per episode."""
    sizes: Sequence[int]
    """Number of episodes of each unit."""

    @classmethod
    def of(
        cls, chosen: EpisodeMetric, side: Mapping[Any, list[EpisodeFigures]], lost: Sequence[int] = ()
    ) -> UnitValues:
        """Return the values of these units, and NaN for each sample that is lost."""
        values = chosen.column(chain.from_iterable(side.values()))
        if chosen.applies is None:
            sizes = [*map(len, side.values())]
        else:
            sizes = [sum(map(chosen.applies, episodes)) for episodes in side.values()]
        if lost:
            values = np.insert(values, np.repeat([*accumulate(sizes)], lost), np.nan)
            sizes = [size + more for size, more in zip(sizes, lost, strict=True)]
        return cls(chosen=chosen, values=values, sizes=sizes)

    @cached_property
    def means(self) -> Floats:
        """The mean of each unit's values, or its estimate of pass@k; NaN if it has none."""
        if self.chosen.k is None:
            return _unit_means(self.values, self.sizes)
        ends = accumulate(self.sizes)
        units = zip(ends, self.sizes, strict=True)
        return np.array([self.chosen.unit(self.values[end - size : end]) for end, size in units], float)

    def known(self) -> list[Floats]:
        """Return the values of each unit that has one, without those that are missing."""
        ends = accumulate(self.sizes)
        units = [self.values[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]
        return [known for unit in units if len(known := unit[~np.isnan(unit)])]

    @property
    def missing(self) -> int:
        """Number of episodes without a value."""
        return int(np.isnan(self.values).sum())

    def filled(self, value: float) -> UnitValues:
        """Return the values with `value` in place of those that are missing."""
        return replace(self, values=np.where(np.isnan(self.values), value, self.values))


def seen_range(columns: Sequence[Floats]) -> ValueRange | None:
    """Return the lowest and the highest value of several columns; None if they are equal, but for 0 and 1."""
    values = np.concatenate([column[~np.isnan(column)] for column in columns])
    if not len(values):
        return None
    if bool(np.isin(values, inference.OUTCOMES).all()):
        return inference.OUTCOMES
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else None


def are_seeds(runs: Mapping[Any, Sequence[EpisodeFigures]]) -> bool:
    """Return whether runs repeat the same tasks; runs that share none are parts of one sample."""
    if len(runs) < 2:
        return False
    tasks = [{episode.unit for episode in episodes} for episodes in runs.values()]
    return any(None in units for units in tasks) or len({*chain(*tasks)}) < sum(map(len, tasks))


def _lost_samples(
    sides: Sequence[Mapping[Any, Sequence[object]]], nameless: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """
    Return how many samples of each task a side lacks: those that the other side has of the task.

    A side that has fewer of every task was planned with fewer, unless as many have lost the task's name.
    """
    sizes = [[*map(len, side.values())] for side in sides]
    planned = [
        max(*side, (sum(side) + unnamed) // len(side)) for side, unnamed in zip(sizes, nameless, strict=True)
    ]
    lost = [
        [max(min(other, most) - size, 0) for size, other in zip(side, others, strict=True)]
        for side, others, most in zip(sizes, sizes[::-1], planned, strict=True)
    ]
    return (lost[0] if any(lost[0]) else (), lost[1] if any(lost[1]) else ())


def _lost_notes(lost: tuple[Sequence[int], Sequence[int]]) -> Iterator[str]:
    for name, side in zip(("base", "candidate"), lost, strict=True):
        if side:
            yield f"{name}: {sum(side):,} samples of tasks are lost, and count as missing"


def _nameless_notes(nameless: Sequence[int]) -> tuple[str, ...]:
    if not any(nameless):
        return ()
    return (f"{nameless[0]:,} and {nameless[1]:,} episodes name no task and no seed, and are left out",)


def _unit_means(values: Floats, sizes: Sequence[int]) -> Floats:
    if len(values) == len(sizes) and all(sizes):  # one value each
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
    if isinstance(window, str) and (match := _UPDATES.fullmatch(window)):
        last = int(match[1])
        windows = [
            {run: _since(episodes, times.get(run, ()), last) for run, episodes in side.items()}
            for side, times in zip(runs, updates, strict=True)
        ]
        return windows, f"training runs: the episodes of the last {window} of each run, one value per run"
    if window == "area":
        finished = [sum(map(_is_finished, episodes)) for side in runs for episodes in side.values()]
        shortest = min(finished)
        windows = [{run: _first(episodes, shortest) for run, episodes in side.items()} for side in runs]
        note = f"training runs: the area under the curve of the first {shortest:,} episodes of each run"
        return windows, f"{note}, divided by their number; one value per run"
    windows = [{run: last_finished(episodes, int(window)) for run, episodes in side.items()} for side in runs]
    return windows, f"training runs: the last {window} episodes of each run, one value per run"


def _is_finished(episode: EpisodeFigures) -> bool:
    return is_counted(episode.status)


def last_finished(episodes: list[EpisodeFigures], count: int) -> list[EpisodeFigures]:
    """Return the last `count` finished episodes, and the unfinished ones among and after them."""
    finished = [place for place, episode in enumerate(episodes) if _is_finished(episode)]
    return episodes if len(finished) <= count else episodes[finished[-count] :]


def _first(episodes: list[EpisodeFigures], count: int) -> list[EpisodeFigures]:
    """Return the first `count` finished episodes, and the unfinished ones before and among them."""
    finished = [place for place, episode in enumerate(episodes) if _is_finished(episode)]
    return episodes if len(finished) <= count else episodes[: finished[count - 1] + 1 if count else 0]


def _since(episodes: list[EpisodeFigures], updates: Sequence[int], last: int) -> list[EpisodeFigures]:
    """The episodes that started after the update before the last ones."""
    if len(updates) <= last:
        return episodes
    start = updates[-last - 1]
    return [episode for episode in episodes if episode.start_time >= start]


def _by_task(chosen: EpisodeMetric, side: Mapping[Any, list[EpisodeFigures]]) -> dict[str, list[float]]:
    by_task: dict[str, list[float]] = {}
    for episodes in side.values():
        for (env, task), values in _grouped(chosen, episodes).items():
            if not math.isnan(mean := _mean(values)):
                by_task.setdefault(f"{env} {task}", []).append(mean)
    return by_task


def _grouped(
    chosen: EpisodeMetric, episodes: Iterable[EpisodeFigures]
) -> dict[tuple[str, str | None], list[float]]:
    values: dict[tuple[str, str | None], list[float]] = {}
    for episode in episodes:
        values.setdefault((episode.env, episode.task), []).extend(chosen.values([episode]))
    return values


def by_unit(episodes: Iterable[EpisodeFigures]) -> dict[Any, list[EpisodeFigures]]:
    """The episodes of each task or seed; under None those that name neither."""
    units: dict[Any, list[EpisodeFigures]] = {}
    for episode in episodes:
        units.setdefault(episode.unit, []).append(episode)
    return units


def _mean(values: Iterable[float]) -> float:
    average = mean(value for value in values if not math.isnan(value))
    return math.nan if average is None else average
