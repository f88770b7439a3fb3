"""Rescoring: recorded episodes scored by two reward specs, from their recorded inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from mttp.model.episodes import Episode
from mttp.model.estimates import mean
from mttp.model.results import RewardResult
from mttp.rewards.agreement import agreement
from mttp.rewards.recorded_samples import sample, scorable, unscorable
from mttp.rewards.spec import RewardSpec

_FEW = 500
"""The maximum number of episodes whose ranks are compared in pairs, without scipy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One episode, scored by both specs."""

    trace_id: str
    """The episode's trace id, 32 hex digits."""
    task: str | None
    """The episode's task."""
    slices: tuple[str, ...]
    """The names of the subsets that the task belongs to."""
    recorded: float | None
    """The recorded reward, if it was given by the first spec with its present rules."""
    before: float | None
    """The reward by the first spec; None if it is not valid."""
    after: float | None
    """The reward by the second spec; None if it is not valid."""
    verdict_before: str | None
    """The verdict by the first spec, pass or fail."""
    verdict_after: str | None
    """The verdict by the second spec, pass or fail."""
    reasons_before: tuple[str, ...] = ()
    """Why the first spec has no valid reward, as `component: reason`; empty if it has one."""
    reasons_after: tuple[str, ...] = ()
    """Why the second spec has no valid reward, as `component: reason`; empty if it has one."""

    @property
    def changed(self) -> bool:
        """Whether the rewards differ, or only one is valid."""
        if self.before is None or self.after is None:
            return self.before is not self.after
        return not isclose(self.before, self.after, rel_tol=1e-9, abs_tol=1e-12)

    @property
    def flipped(self) -> bool:
        """Whether the verdicts differ."""
        return self.verdict_before != self.verdict_after


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredSlice:
    """The differences between both specs in one slice of the episodes."""

    name: str
    """The slice; `all` is all episodes."""
    episodes: int
    """The number of scored episodes."""
    changed: int
    """The number of changed rewards."""
    flipped: int
    """The number of changed verdicts."""
    invalid_before: int
    """The number of episodes without a valid reward by the first spec."""
    invalid_after: int
    """The number of episodes without a valid reward by the second spec."""
    mean_before: float | None
    """The mean reward by the first spec, of the episodes with two valid rewards."""
    mean_after: float | None
    """The mean reward by the second spec, of the episodes with two valid rewards."""
    tau_b: float | None
    """Kendall's tau-b of both rewards; None if one side is constant, or above 500 episodes without scipy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescoring:
    """The effect of a spec's change on recorded episodes."""

    episodes: tuple[Rescored, ...]
    """The scored episodes."""
    reasons_before: Mapping[str, int]
    """The number of episodes by reason for no valid reward by the first spec, most frequent first."""
    reasons_after: Mapping[str, int]
    """The number of episodes by reason for no valid reward by the second spec, most frequent first."""
    lacking: Mapping[str, int]
    """The number of episodes that were not scored, by the inputs that they did not record."""
    reproduced: int
    """The number of recorded rewards of the first spec that it gives again."""
    slices: tuple[RescoredSlice, ...]
    """All episodes, then each slice by name."""

    @property
    def without_inputs(self) -> int:
        """The number of episodes that were not scored because they lack an input."""
        return sum(self.lacking.values())


def rescore(episodes: Iterable[Episode], before: RewardSpec, after: RewardSpec) -> Rescoring:
    """
    Score recorded episodes by both specs and compare the rewards; relative components use recorded groups.

    Raises SpecError when the code of a spec can't be used, and StudyError where no episode has its inputs.
    """
    recorded = list(episodes)
    usable, lacking = scorable(recorded, before, after)
    if lacking and not usable:
        raise unscorable(recorded, before, after)
    pairs = zip(usable, scored_again(before, usable), scored_again(after, usable), strict=True)
    scored = tuple(
        _rescored(episode, old, new, before)
        for episode, old, new in pairs
        if old is not None and new is not None
    )
    names = sorted({name for row in scored for name in row.slices})
    slices = [_slice("all", scored)]
    slices += [_slice(name, [row for row in scored if name in row.slices]) for name in names]
    return Rescoring(
        episodes=scored,
        reasons_before=_counted(row.reasons_before for row in scored),
        reasons_after=_counted(row.reasons_after for row in scored),
        lacking=lacking,
        reproduced=sum(row.recorded is not None and row.recorded == row.before for row in scored),
        slices=tuple(slices),
    )


def _counted(reasons: Iterable[tuple[str, ...]]) -> dict[str, int]:
    return dict(Counter(reason for several in reasons for reason in several).most_common())


def scored_again(spec: RewardSpec, episodes: Sequence[Episode]) -> list[RewardResult | None]:
    """Score each episode; None for an episode without the group that a relative component needs."""
    samples = [sample(spec, episode) for episode in episodes]
    if not any(part.relative for part in spec.parts):
        return [*spec.score_batch(samples)]
    results: list[RewardResult | None] = [None] * len(episodes)
    groups: dict[str, list[int]] = {}
    for place, episode in enumerate(episodes):
        if episode.group is not None:
            groups.setdefault(episode.group, []).append(place)
    for places in groups.values():
        ranked = spec.rank([samples[place] for place in places]).results
        for place, result in zip(places, ranked, strict=True):
            results[place] = result
    return results


def _rescored(episode: Episode, before: RewardResult, after: RewardResult, spec: RewardSpec) -> Rescored:
    recorded = episode.reward
    is_same = recorded.spec is not None and recorded.spec.sha256 == spec.sha256
    return Rescored(
        trace_id=episode.trace_id,
        task=episode.task,
        slices=tuple(episode.slices),
        recorded=recorded.value if is_same and recorded.status == "ok" else None,
        before=before.value if before.status == "ok" else None,
        after=after.value if after.status == "ok" else None,
        verdict_before=before.verdict,
        verdict_after=after.verdict,
        reasons_before=invalid_reasons(before),
        reasons_after=invalid_reasons(after),
    )


def invalid_reasons(result: RewardResult) -> tuple[str, ...]:
    """Return why a result is not valid: the errors of its components, else its own."""
    if result.status == "ok":
        return ()
    reasons = [
        f"{name}: {grade.error or grade.status}"
        for name, grade in result.components.items()
        if grade.status != "ok"
    ]
    return tuple(reasons) or (result.error or result.status,)


def _slice(name: str, scored: Sequence[Rescored]) -> RescoredSlice:
    both = [(row.before, row.after) for row in scored if row.before is not None and row.after is not None]
    return RescoredSlice(
        name=name,
        episodes=len(scored),
        changed=sum(row.changed for row in scored),
        flipped=sum(row.flipped for row in scored),
        invalid_before=sum(row.before is None for row in scored),
        invalid_after=sum(row.after is None for row in scored),
        mean_before=mean([old for old, _ in both]),
        mean_after=mean([new for _, new in both]),
        tau_b=_tau_b(both),
    )


def _tau_b(pairs: Sequence[tuple[float, float]]) -> float | None:
    if len(pairs) <= _FEW:
        pair_agreement = agreement(pairs)
        return pair_agreement.tau_b if pair_agreement is not None else None
    try:
        from scipy.stats import kendalltau
    except ImportError:
        return None
    tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
    return tau if tau == tau else None
