"""Comparisons: whether one side is better than another, by how much, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from mttp.errors import StudyError
from mttp.study import inference
from mttp.study.differences import REFUSED, SideDifference, differences
from mttp.study.inference import Inference
from mttp.study.metrics import EpisodeMetric, default_metrics, metric
from mttp.study.sample import EpisodeFigures, Sample, Side, load

__all__ = ["Comparison", "Flip", "MetricComparison", "Verdict", "compare"]

Verdict: TypeAlias = Literal["better", "worse", "equivalent", "inconclusive"]
_Unit: TypeAlias = tuple[str, str]

_WINDOW = 100
"""Episodes at the end of a training run whose mean stands for the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric of both sides; the effect is `candidate - base`."""

    name: str
    verdict: Verdict
    """`better` and `worse` where the corrected p value is at most 1 - confidence; `equivalent` where the
    interval is within the margin; else `inconclusive`."""
    base: float | None
    """The mean; over tasks where there are tasks, over runs where there are several."""
    candidate: float | None
    effect: float | None
    interval: tuple[float, float] | None
    """The confidence interval of the effect; None where the data support none."""
    confidence: float
    p_value: float | None
    """Two-sided, not corrected."""
    p_corrected: float | None
    """Corrected by Holm over all metrics but the first, which is not corrected."""
    n: tuple[int, int]
    """Episodes with a value, on each side."""
    clusters: int | tuple[int, int]
    """Independent units: shared tasks, or tasks, episodes or runs of each side."""
    paired: bool
    method: str
    detectable: float | None
    """The least effect that this sample detects with a power of 80 %."""
    margin: float | None
    """The effect up to which the sides count as equivalent."""
    missing: tuple[int, int]
    """Episodes without a value, on each side."""
    worst_case: float | None
    """The effect if each missing value were the worst value that was seen; None where none is missing."""
    reason: str | None = None
    """Why there is no verdict."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)

    def __repr__(self) -> str:
        effect = "no effect known" if self.effect is None else f"{self.effect:+.4g}"
        interval = "" if self.interval is None else " [{:+.4g}, {:+.4g}]".format(*self.interval)
        return f"<{self.name}: {self.verdict}, {effect}{interval}, n={self.n[0]:,} and {self.n[1]:,}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A task that succeeded on one side and failed on the other, by the majority of its episodes."""

    task: str
    base: float
    """The share of successes."""
    candidate: float
    base_episode: str
    """The trace id of one of its episodes."""
    candidate_episode: str

    @property
    def gained(self) -> bool:
        """Whether it failed before."""
        return self.candidate > self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate against a base; `comparison["return"]` is one metric."""

    base: str
    candidate: str
    differences: tuple[SideDifference, ...]
    """What else differs: tasks, spec, configuration, packages, ..."""
    metrics: tuple[MetricComparison, ...]
    """The first one decides; the others are corrected for their number."""
    flips: tuple[Flip, ...]
    slices: Mapping[str, MetricComparison]
    """The first metric, by slice."""
    notes: tuple[str, ...] = ()
    """What a reader should know about how the comparison was made."""
    problems: tuple[str, ...] = field(default=())
    """What is wrong with the recordings."""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the first metric."""
        return self.metrics[0].verdict

    def __getitem__(self, name: str) -> MetricComparison:
        for one in self.metrics:
            if one.name == name:
                return one
        raise KeyError(f"{name!r} was not compared; there are {', '.join(one.name for one in self.metrics)}")

    def __iter__(self) -> Iterator[MetricComparison]:
        return iter(self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {"verdict": self.verdict, **asdict(self)}

    def __repr__(self) -> str:
        return f"<Comparison: {self.verdict}, {self.metrics[0]!r}>"


def compare(
    base: Side,
    candidate: Side,
    *,
    metrics: Sequence[str] = (),
    by: str | None = None,
    margin: float | Mapping[str, float] | None = None,
    window: int = _WINDOW,
    allow: Iterable[str] = (),
    confidence: float = 0.95,
    progress: Callable[[int], object] | None = None,
) -> Comparison:
    """
    Compare the episodes of a candidate with those of a base.

    Episodes are paired by task (else by seed) where both sides have the same ones, and clustered by it:
    several samples of a task are not independent.
    Several runs on a side are several seeds: each run is one value.
    Of training runs the mean of the last `window` episodes of each run counts, never a t interval over a
    learning curve.

    `metrics` are names such as `return`, `success`, `components.correct`, `pass@4`; the first one decides.
    `by` is `split`, `slices`, `env` or `inputs.NAME`: the first metric is also compared within each value.
    `margin` is the effect up to which the sides count as equivalent, for all metrics or by name.
    `allow` names differences that are accepted: `tasks`, `spec`, `grader`.

    Raises ReadError where a side can't be read or has no episodes, StudyError for an unknown metric or slice,
    and where tasks, reward spec or grader differ and are not allowed to.
    """
    before, after = load(base, progress=progress), load(candidate, progress=progress)
    found = differences(before, after)
    _refuse(found, frozenset(allow))
    together = [*before.episodes, *after.episodes]
    chosen = [metric(name, together) for name in (metrics or default_metrics(together))]
    if not chosen:
        raise StudyError(
            "no episode states a return, a reward or another number: there is nothing to compare"
        )
    plan = _Design.of(before, after, window)
    compared = [plan.compare(one, confidence, _margin(margin, one.name)) for one in chosen]
    return Comparison(
        base=before.name,
        candidate=after.name,
        differences=found,
        metrics=tuple(_corrected(compared, chosen)),
        flips=tuple(_flips(before, after)),
        slices=_slices(by, before, after, chosen[0], window, confidence, _margin(margin, chosen[0].name)),
        notes=plan.notes,
        problems=(*before.problems, *after.problems),
    )


# Design: what is independent, and what belongs together.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """Which values of both sides are compared."""

    base: Mapping[Any, list[EpisodeFigures]]
    """Episodes by unit: a task, a run, or the episode itself."""
    candidate: Mapping[Any, list[EpisodeFigures]]
    unit: Literal["task", "run", "episode"]
    paired: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, base: Sample, candidate: Sample, window: int) -> _Design:
        sides = (base, candidate)
        runs = [side.by_run() for side in sides]
        if any(side.is_training for side in sides):
            kept = [{run: episodes[-window:] for run, episodes in side.items()} for side in runs]
            note = f"training runs: the last {window} episodes of each run, one value per run"
            few = [] if min(map(len, runs)) >= 2 else ["one run a side proves little: add seeds"]
            return cls(base=kept[0], candidate=kept[1], unit="run", paired=False, notes=(note, *few))
        if min(map(len, runs)) >= 2:
            note = f"{len(runs[0])} and {len(runs[1])} runs: one value per run"
            return cls(base=runs[0], candidate=runs[1], unit="run", paired=False, notes=(note,))
        units = [_by_unit(side.episodes) for side in sides]
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
        )

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


def _by_unit(episodes: Iterable[EpisodeFigures]) -> dict[Any, list[EpisodeFigures]]:
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


# Verdicts.


def _corrected(
    compared: Sequence[MetricComparison], chosen: Sequence[EpisodeMetric]
) -> list[MetricComparison]:
    """The metrics with verdicts: the first one uncorrected, the others by Holm."""
    first, *rest = compared
    corrected = [first.p_value, *_holm([one.p_value for one in rest])]
    return [
        _decided(one, p_value, each.direction)
        for one, p_value, each in zip(compared, corrected, chosen, strict=True)
    ]


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P values corrected by Holm (1979); None stays None and is not counted."""
    known = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    found: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        found[place] = largest
    return found


def _decided(one: MetricComparison, p_value: float | None, direction: int) -> MetricComparison:
    one = replace(one, p_corrected=p_value)
    if p_value is None or one.effect is None or one.interval is None:
        return one
    low, high = one.interval
    margin = one.margin or 0.0
    if -margin <= low and high <= margin:
        return replace(one, verdict="equivalent")
    if p_value > 1 - one.confidence:
        return one
    if not direction:
        return replace(one, reason="neither more nor less of it is better")
    return replace(one, verdict="better" if one.effect * direction > 0 else "worse")


def _margin(margin: float | Mapping[str, float] | None, name: str) -> float | None:
    found = margin.get(name) if isinstance(margin, Mapping) else margin
    if found is not None and not (math.isfinite(found) and found >= 0):
        raise StudyError(f"margin={found!r} of {name}: give a number from 0 on")
    return found


def _refuse(found: Iterable[SideDifference], allowed: frozenset[str]) -> None:
    if unknown := allowed - {*REFUSED}:
        raise StudyError(f"allow={min(unknown)!r} is no kind of difference; there are {', '.join(REFUSED)}")
    for one in found:
        if one.kind in REFUSED and one.kind not in allowed:
            raise StudyError(
                f"the sides differ in their {one.kind}: {one.base or 'none'} and {one.candidate or 'none'}; "
                f"allow it by allow=[{one.kind!r}], on the command line by --allow {one.kind}"
            )


# Flips and slices.


def _flips(base: Sample, candidate: Sample) -> Iterator[Flip]:
    sides = [_by_unit(one for one in side.episodes if one.success is not None) for side in (base, candidate)]
    for unit in sorted(unit for unit in sides[0].keys() & sides[1].keys() if unit is not None):
        before, after = (_mean(float(bool(one.success)) for one in side[unit]) for side in sides)
        if (before - 0.5) * (after - 0.5) < 0:
            yield Flip(
                task=unit[1],
                base=before,
                candidate=after,
                base_episode=sides[0][unit][0].trace_id,
                candidate_episode=sides[1][unit][0].trace_id,
            )


def _slices(
    by: str | None,
    base: Sample,
    candidate: Sample,
    chosen: EpisodeMetric,
    window: int,
    confidence: float,
    margin: float | None,
) -> dict[str, MetricComparison]:
    if by is None:
        return {}
    names = sorted({name for side in (base, candidate) for one in side.episodes for name in _slice(one, by)})
    if not names:
        raise StudyError(f"no episode has a value of {by!r}; slice by split, slices, env or inputs.NAME")
    found = []
    for name in names:
        sides = [
            replace(side, episodes=tuple(one for one in side.episodes if name in _slice(one, by)))
            for side in (base, candidate)
        ]
        found.append(_Design.of(sides[0], sides[1], window).compare(chosen, confidence, margin))
    corrected = _holm([one.p_value for one in found])
    return {
        name: _decided(one, p_value, chosen.direction)
        for name, one, p_value in zip(names, found, corrected, strict=True)
    }


def _slice(one: EpisodeFigures, by: str) -> tuple[str, ...]:
    head, _, key = by.partition(".")
    if head == "inputs" and key:
        return (str(one.inputs[key]),) if key in one.inputs else ()
    values = {"split": (one.split,), "slices": one.slices, "env": (one.env or None,), "group": (one.group,)}
    if by not in values:
        raise StudyError(f"there is no slice by {by!r}; slice by {', '.join(values)} or inputs.NAME")
    return tuple(value for value in values[by] if value is not None)
