"""Recorded episodes scored again by two reward specs, from the inputs that were recorded with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from typing import Any

from mttp.model.episodes import Episode
from mttp.model.results import RewardResult
from mttp.rewards.agreement import agreement
from mttp.rewards.spec import RewardSpec

__all__ = ["Rescored", "Rescoring", "RescoredSlice", "rescore", "sample", "scored_again"]

_FEW = 500
"""Up to so many episodes, ranks are compared pair by pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One episode, scored by both specs."""

    trace_id: str
    """Its trace."""
    task: str | None
    """Its task."""
    slices: tuple[str, ...]
    """The subsets that its task belongs to."""
    recorded: float | None
    """What it was paid by the first spec as it is now, if it was."""
    before: float | None
    """What the first spec pays; None where it has no valid reward."""
    after: float | None
    """What the second spec pays; None where it has none."""
    verdict_before: str | None
    """pass or fail, by the first."""
    verdict_after: str | None
    """pass or fail, by the second."""
    reasons_before: tuple[str, ...] = ()
    """Why the first spec has no valid reward, `component: reason` each; empty where it has one."""
    reasons_after: tuple[str, ...] = ()
    """Why the second spec has none."""

    @property
    def changed(self) -> bool:
        """Whether the reward is another, or is there for one of them only."""
        if self.before is None or self.after is None:
            return self.before is not self.after
        return not isclose(self.before, self.after, rel_tol=1e-9, abs_tol=1e-12)

    @property
    def flipped(self) -> bool:
        """Whether the verdict is another."""
        return self.verdict_before != self.verdict_after


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredSlice:
    """What became of some episodes."""

    name: str
    """The slice; `all` is all of them."""
    episodes: int
    """How many were scored."""
    changed: int
    """Rewards that are others."""
    flipped: int
    """Verdicts that are others."""
    invalid_before: int
    """Episodes for which the first spec has no reward."""
    invalid_after: int
    """Episodes for which the second spec has none."""
    mean_before: float | None
    """Mean reward where both have one."""
    mean_after: float | None
    """Likewise, of the second."""
    tau_b: float | None
    """Kendall's rank correlation between both; None where one is all the same (or without scipy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescoring:
    """Everything that a change of the spec does to a recording."""

    episodes: tuple[Rescored, ...]
    """The episodes that could be scored."""
    reasons_before: Mapping[str, int]
    """Why the first spec has no valid reward, and for how many episodes; the most frequent reason first."""
    reasons_after: Mapping[str, int]
    """Why the second spec has none."""
    without_inputs: int
    """Episodes that recorded no inputs by name, where the specs do not score the episode itself."""
    reproduced: int
    """Recorded rewards of the first spec that it pays again."""
    slices: tuple[RescoredSlice, ...]
    """All episodes together, then each slice by name."""


def rescore(episodes: Iterable[Episode], before: RewardSpec, after: RewardSpec) -> Rescoring:
    """
    What both specs pay for recorded episodes; relative components see the recorded groups.

    Raises SpecError where the code of one can't be called.
    """
    found = list(episodes)
    usable = [one for one in found if sample(before, one) is not None and sample(after, one) is not None]
    pairs = zip(usable, scored_again(before, usable), scored_again(after, usable), strict=True)
    scored = tuple(
        _rescored(episode, one, other, before)
        for episode, one, other in pairs
        if one is not None and other is not None
    )
    names = sorted({name for one in scored for name in one.slices})
    slices = [_slice("all", scored)]
    slices += [_slice(name, [one for one in scored if name in one.slices]) for name in names]
    return Rescoring(
        episodes=scored,
        reasons_before=_counted(one.reasons_before for one in scored),
        reasons_after=_counted(one.reasons_after for one in scored),
        without_inputs=len(found) - len(usable),
        reproduced=sum(one.recorded is not None and one.recorded == one.before for one in scored),
        slices=tuple(slices),
    )


def sample(spec: RewardSpec, episode: Episode) -> Mapping[str, Any] | None:
    """
    What a spec scores of a recorded episode: its inputs, and itself where an input's type is `episode`.

    None where it has no inputs by name and is none itself.
    """
    names = {
        name
        for one in spec.everything()
        for name, kind in one.document.inputs.items()
        if kind.rstrip("?") == "episode"
    }
    if not isinstance(episode.inputs, Mapping):
        return dict.fromkeys(names, episode) or None
    return {**dict.fromkeys(names, episode), **episode.inputs}


def _counted(reasons: Iterable[tuple[str, ...]]) -> dict[str, int]:
    return dict(Counter(reason for several in reasons for reason in several).most_common())


def scored_again(spec: RewardSpec, episodes: Sequence[Episode]) -> list[RewardResult | None]:
    """The result of each episode; None of one that has no group where one is needed."""
    samples = [sample(spec, episode) or {} for episode in episodes]
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
    paid = episode.reward
    is_same = paid.spec is not None and paid.spec.sha256 == spec.sha256
    return Rescored(
        trace_id=episode.trace_id,
        task=episode.task,
        slices=tuple(episode.slices),
        recorded=paid.value if is_same and paid.status == "ok" else None,
        before=before.value if before.status == "ok" else None,
        after=after.value if after.status == "ok" else None,
        verdict_before=before.verdict,
        verdict_after=after.verdict,
        reasons_before=_reasons(before),
        reasons_after=_reasons(after),
    )


def _reasons(result: RewardResult) -> tuple[str, ...]:
    """Why a result is not valid: what each component without a value says, else what the result says."""
    if result.status == "ok":
        return ()
    found = [
        f"{name}: {grade.error or grade.status}"
        for name, grade in result.components.items()
        if grade.status != "ok"
    ]
    return tuple(found) or (result.error or result.status,)


def _slice(name: str, scored: Sequence[Rescored]) -> RescoredSlice:
    both = [(one.before, one.after) for one in scored if one.before is not None and one.after is not None]
    return RescoredSlice(
        name=name,
        episodes=len(scored),
        changed=sum(one.changed for one in scored),
        flipped=sum(one.flipped for one in scored),
        invalid_before=sum(one.before is None for one in scored),
        invalid_after=sum(one.after is None for one in scored),
        mean_before=_mean([one for one, _ in both]),
        mean_after=_mean([other for _, other in both]),
        tau_b=_tau_b(both),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _tau_b(pairs: Sequence[tuple[float, float]]) -> float | None:
    if len(pairs) <= _FEW:
        found = agreement(pairs)
        return found.tau_b if found is not None else None
    try:
        from scipy.stats import kendalltau
    except ImportError:
        return None
    tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
    return tau if tau == tau else None
