"""`mttp.compare`: whether one side is better than another, by how much, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from mttp.errors import StudyError
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.design import Design, Window, by_unit, check_window
from mttp.model.statistics.inference import ValueRange
from mttp.model.statistics.metric_comparison import MetricComparison
from mttp.model.statistics.metrics import EpisodeMetric, default_metrics, metric
from mttp.model.statistics.verdicts import corrected, decided, filled_p, holm
from mttp.reading.garbage import gc_disabled
from mttp.study.comparison import Comparison, Flip
from mttp.study.differences import REFUSED, SideDifference, differences
from mttp.study.sample import Sample, Side, load, run_entropies

_WINDOW = 100
_HINT = "allow=[{kind!r}], on the command line by --allow {kind}"
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
    `allow` names differences that are accepted: `env`, `tasks`, `inputs`, `spec`, `grader`; `missing`, by
    which episodes without a value are left out; and `sampled`, a side with only some episodes of its run.
    Without that a verdict needs the test to hold twice: for the values that are there, and with each missing
    one as the worst case against the verdict.

    Raises ReadError where a side can't be read or has no episodes, StudyError for an unknown metric or slice,
    and where environment, tasks, inputs, reward spec or grader differ, or a side is a sample of its run, and
    this is not allowed.
    """
    check_window(window)
    before, after = load(base, progress=progress), load(candidate, progress=progress)
    side_differences, allowed = differences(before, after), frozenset(allow)
    refuse_samples((before, after), allowed, hint=_HINT)
    refuse_differences(side_differences, allowed, hint=_HINT)
    together = [*before.episodes, *after.episodes]
    span, entropies = spec_range(before, after), run_entropies(before, after)
    chosen = [
        metric(name, together, span=span, entropies=entropies)
        for name in (metrics or default_metrics(together))
    ]
    if not chosen:
        raise StudyError(
            "no episode states a return, a reward or another number: there is nothing to compare"
        )
    plan = Design.of(before, after, window)
    compared = [plan.compare(measure, confidence, _margin(margin, measure.name)) for measure in chosen]
    return Comparison(
        base=before.name,
        candidate=after.name,
        differences=side_differences,
        metrics=tuple(corrected(compared, chosen, missing_allowed="missing" in allowed)),
        flips=tuple(_flips(plan, before, after)),
        slices=_slices(
            by,
            before,
            after,
            chosen[0],
            window,
            confidence,
            _margin(margin, chosen[0].name),
            missing_allowed="missing" in allowed,
        ),
        notes=(*plan.notes, *side_notes(before, after)),
        problems=(*before.problems, *after.problems),
    )


def spec_range(*sides: Sample) -> ValueRange | None:
    """Return the range that the one reward spec of all sides states; None without one."""
    ranges = {side.spec_range() for side in sides}
    return ranges.pop() if len(ranges) == 1 else None


def side_notes(base: Sample, candidate: Sample) -> Iterator[str]:
    """Yield what a reader should know about the sides: what was left out, and what both have."""
    for name, side in (("base", base), ("candidate", candidate)):
        yield from (f"{name}: {note}" for note in (*side.sampled, *side.notes))
    if shared := shared_episodes(base, candidate):
        yield f"{shared:,} episodes are on both sides"


def shared_episodes(base: Sample, candidate: Sample) -> int:
    """Return the number of episodes that are on both sides."""
    traces = [{episode.trace_id for episode in side.episodes} - {""} for side in (base, candidate)]
    return len(traces[0] & traces[1])


def _margin(margin: float | Mapping[str, float] | None, name: str) -> float | None:
    limit = margin.get(name) if isinstance(margin, Mapping) else margin
    if limit is not None and not (math.isfinite(limit) and limit >= 0):
        raise StudyError(f"margin={limit!r} of {name}: give a number from 0 on")
    return limit


ALLOWED = (*REFUSED, "missing", "sampled")
"""What can be allowed: kinds of differences, to leave missing values out, and samples of runs."""


def refuse_differences(found: Iterable[SideDifference], allowed: frozenset[str], *, hint: str) -> None:
    """
    Raise StudyError for a difference that makes two experiments of the sides and is not allowed.

    `hint` says how the caller is asked to allow a `{kind}`.
    """
    if unknown := allowed - {*ALLOWED}:
        raise StudyError(
            f"allow={min(unknown)!r} is not a kind of difference; the kinds are {', '.join(ALLOWED)}"
        )
    for difference in found:
        if difference.is_refused and difference.kind not in allowed:
            kind, name = difference.kind, difference.name
            raise StudyError(
                f"the sides differ in their {kind} ({name}): "
                f"{difference.base or 'none'} and {difference.candidate or 'none'}; "
                f"make them equal, or allow it by {hint.format(kind=kind)}"
            )


def refuse_samples(sides: Iterable[Sample], allowed: frozenset[str], *, hint: str) -> None:
    """Raise StudyError for a side that has only some episodes of its run, unless `sampled` is allowed."""
    for side in sides:
        if side.sampled and "sampled" not in allowed:
            raise StudyError(
                f"{side.name}: {side.sampled[0]}; give all of its episodes, "
                f"or allow it by {hint.format(kind='sampled')}"
            )


# Flips and slices.


def _flips(plan: Design, base: Sample, candidate: Sample) -> Iterator[Flip]:
    sides = (
        [plan.base, plan.candidate]
        if plan.unit == "task"
        else [by_unit(side.episodes) for side in (base, candidate)]
    )
    for unit in sorted(unit for unit in sides[0].keys() & sides[1].keys() if unit is not None):
        known = [[episode for episode in side[unit] if episode.success is not None] for side in sides]
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
    *,
    missing_allowed: bool,
) -> dict[str, MetricComparison]:
    if by is None:
        return {}
    slices = Slices.of(by, base, candidate)
    if not slices.names:
        raise StudyError(f"no episode has a value of {by!r}; slice by another one")
    compared = []
    for name in slices.names:
        sides = slices.sides(name)
        compared.append(Design.of(sides[0], sides[1], window).compare(chosen, confidence, margin))
    p_values, worst = holm([metric.p_value for metric in compared]), holm([*map(filled_p, compared)])
    return {
        name: decided(metric, p_value, worst_p, chosen.direction, missing_allowed=missing_allowed)
        for name, metric, p_value, worst_p in zip(slices.names, compared, p_values, worst, strict=True)
    }


_OF_TASK = frozenset({"split", "slices", "inputs", "metadata"})
"""Fields that describe the task: of a task with a name the base's label holds on both sides."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Both sides by the values of one field."""

    base: Sample
    candidate: Sample
    episodes: tuple[Mapping[str, list[EpisodeFigures]], Mapping[str, list[EpisodeFigures]]]
    """The episodes of each slice of the base, and of the candidate."""
    relabelled: int
    """Number of episodes of the candidate whose own label is another one than the base's of the task."""

    @classmethod
    def of(cls, by: str, base: Sample, candidate: Sample) -> Slices:
        """Return the slices; of a task that the base labels, the candidate's own label does not count."""
        before, values = ([slice_values(row, by) for row in side.episodes] for side in (base, candidate))
        after = values
        if _ATTRIBUTES.get(name := by.removeprefix("mttp."), name).partition(".")[0] in _OF_TASK:
            labels: dict[tuple[str, str], tuple[str, ...]] = {}
            for episode, names in zip(base.episodes, before, strict=True):
                if episode.unit is not None and episode.task is not None:
                    labels[episode.unit] = tuple(sorted({*labels.get(episode.unit, ()), *names}))
            after = [
                names if episode.unit is None else labels.get(episode.unit, names)
                for episode, names in zip(candidate.episodes, values, strict=True)
            ]
        changed = sum({*first} != {*second} for first, second in zip(values, after, strict=True))
        return cls(base, candidate, (_by_slice(base, before), _by_slice(candidate, after)), changed)

    @property
    def names(self) -> list[str]:
        """The slices of both sides, sorted."""
        return sorted(self.episodes[0].keys() | self.episodes[1].keys())

    def sides(self, name: str) -> tuple[Sample, Sample]:
        """Return both sides with the episodes of one slice."""
        before, after = (tuple(by_slice.get(name, ())) for by_slice in self.episodes)
        return replace(self.base, episodes=before), replace(self.candidate, episodes=after)


def _by_slice(side: Sample, labels: Sequence[tuple[str, ...]]) -> dict[str, list[EpisodeFigures]]:
    slices: dict[str, list[EpisodeFigures]] = {}
    for episode, names in zip(side.episodes, labels, strict=True):
        for name in {*names}:
            slices.setdefault(name, []).append(episode)
    return slices


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
    return sum(bool(episode.success) for episode in episodes) / len(episodes)
