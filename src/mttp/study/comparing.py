"""`mttp.compare`: whether one side is better than another, by how much, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from mttp.errors import StudyError
from mttp.reading.garbage import gc_disabled
from mttp.study.comparison import Comparison, Flip, MetricComparison
from mttp.study.design import Design, Window, by_unit, check_window
from mttp.study.differences import REFUSED, SideDifference, differences
from mttp.study.metrics import EpisodeMetric, default_metrics, metric
from mttp.study.sample import EpisodeFigures, Sample, Side, load

__all__ = ["compare", "corrected", "refuse_differences", "slice_values"]

_WINDOW = 100
_SLICES = (
    "split",
    "slices",
    "env",
    "group",
    "task",
    "seed",
    "policy_version",
    "status",
    "outcome",
    "stop_reason",
    "run",
)
"""Fields of an episode by whose values it can be sliced."""
_ATTRIBUTES = {
    "task.split": "split",
    "task.slices": "slices",
    "task.id": "task",
    "env.id": "env",
    "env.seed": "seed",
    "group.id": "group",
    "policy.version.start": "policy_version",
    "episode.status": "status",
    "episode.outcome": "outcome",
    "episode.stop_reason": "stop_reason",
    "run.id": "run",
}
"""The field for the name of an attribute, without the prefix `mttp.`."""


@gc_disabled()
def compare(
    base: Side,
    candidate: Side,
    *,
    metrics: Sequence[str] = (),
    by: str | None = None,
    margin: float | Mapping[str, float] | None = None,
    window: Window = _WINDOW,
    allow: Iterable[str] = (),
    confidence: float = 0.95,
    progress: Callable[[int], object] | None = None,
) -> Comparison:
    """
    Compare the episodes of a candidate with those of a base.

    Episodes are paired by task (else by seed) where both sides have the same ones, and clustered by it:
    several samples of a task are not independent.
    Several runs on a side are several seeds: each run is one value.
    Of training runs the mean of the last `window` episodes of each run counts, of the episodes of its last
    updates (`window="20 updates"`), or the area under its learning curve (`window="area"`); a learning curve
    never gets a t interval of its own.

    `metrics` are names such as `return`, `success`, `components.correct`, `pass@4`; the first one decides.
    `by` is `split`, `slices`, `env`, `group`, `policy_version`, `inputs.NAME`, `metadata.NAME` or the name
    of an attribute, such as `task.split`: the first metric is also compared within each value.
    `margin` is the effect up to which the sides count as equivalent, for all metrics or by name.
    `allow` names differences that are accepted: `tasks`, `spec`, `grader`.

    Raises ReadError where a side can't be read or has no episodes, StudyError for an unknown metric or slice,
    and where tasks, reward spec or grader differ and are not allowed to.
    """
    check_window(window)
    before, after = load(base, progress=progress), load(candidate, progress=progress)
    found = differences(before, after)
    refuse_differences(found, frozenset(allow))
    together = [*before.episodes, *after.episodes]
    chosen = [metric(name, together) for name in (metrics or default_metrics(together))]
    if not chosen:
        raise StudyError(
            "no episode states a return, a reward or another number: there is nothing to compare"
        )
    plan = Design.of(before, after, window)
    compared = [plan.compare(one, confidence, _margin(margin, one.name)) for one in chosen]
    return Comparison(
        base=before.name,
        candidate=after.name,
        differences=found,
        metrics=tuple(corrected(compared, chosen)),
        flips=tuple(_flips(plan, before, after)),
        slices=_slices(by, before, after, chosen[0], window, confidence, _margin(margin, chosen[0].name)),
        notes=plan.notes,
        problems=(*before.problems, *after.problems),
    )


# Verdicts.


def corrected(
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


def refuse_differences(found: Iterable[SideDifference], allowed: frozenset[str]) -> None:
    """Raise StudyError for a difference in tasks, spec or grader that is not allowed."""
    if unknown := allowed - {*REFUSED}:
        raise StudyError(
            f"allow={min(unknown)!r} is not a kind of difference; the kinds are {', '.join(REFUSED)}"
        )
    for one in found:
        if one.kind in REFUSED and one.kind not in allowed:
            raise StudyError(
                f"the sides differ in their {one.kind}: {one.base or 'none'} and {one.candidate or 'none'}; "
                f"allow it by allow=[{one.kind!r}] (on the command line --allow {one.kind}, "
                f"in promotion rules `allow: [{one.kind}]`)"
            )


# Flips and slices.


def _flips(plan: Design, base: Sample, candidate: Sample) -> Iterator[Flip]:
    sides = (
        [plan.base, plan.candidate]
        if plan.unit == "task"
        else [by_unit(side.episodes) for side in (base, candidate)]
    )
    for unit in sorted(unit for unit in sides[0].keys() & sides[1].keys() if unit is not None):
        known = [[one for one in side[unit] if one.success is not None] for side in sides]
        if not all(known):
            continue
        before, after = map(_share, known)
        if (before - 0.5) * (after - 0.5) < 0:
            yield Flip(
                task=unit[1],
                base=before,
                candidate=after,
                base_episode=known[0][0].trace_id,
                candidate_episode=known[1][0].trace_id,
            )


def _slices(
    by: str | None,
    base: Sample,
    candidate: Sample,
    chosen: EpisodeMetric,
    window: Window,
    confidence: float,
    margin: float | None,
) -> dict[str, MetricComparison]:
    if by is None:
        return {}
    names = sorted(
        {name for side in (base, candidate) for one in side.episodes for name in slice_values(one, by)}
    )
    if not names:
        raise StudyError(f"no episode has a value of {by!r}; slice by another one")
    found = []
    for name in names:
        sides = [
            replace(side, episodes=tuple(one for one in side.episodes if name in slice_values(one, by)))
            for side in (base, candidate)
        ]
        found.append(Design.of(sides[0], sides[1], window).compare(chosen, confidence, margin))
    corrected = _holm([one.p_value for one in found])
    return {
        name: _decided(one, p_value, chosen.direction)
        for name, one, p_value in zip(names, found, corrected, strict=True)
    }


def slice_values(one: EpisodeFigures, by: str) -> tuple[str, ...]:
    """The slices of an episode; raises StudyError for an unknown `by`."""
    by = by.removeprefix("mttp.")
    head, _, key = by.partition(".")
    if head in ("inputs", "metadata") and key:
        values = one.inputs if head == "inputs" else one.metadata
        return (str(values[key]),) if key in values else ()
    name = _ATTRIBUTES.get(by, by)
    if name not in _SLICES:
        near = get_close_matches(by, [*_SLICES, *_ATTRIBUTES], n=1)
        advice = (
            f"; did you mean {near[0]!r}?"
            if near
            else f"; slice by {', '.join(_SLICES)}, inputs.NAME or metadata.NAME"
        )
        raise StudyError(f"there is no slice by {by!r}{advice}")
    value = getattr(one, name)
    return tuple(value) if name == "slices" else (str(value),) if value not in (None, "") else ()


def _share(episodes: Sequence[EpisodeFigures]) -> float:
    """The share of successes."""
    return sum(bool(one.success) for one in episodes) / len(episodes)
