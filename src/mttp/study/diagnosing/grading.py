"""Detectors of graders that fail, are noisy, drift or are out of calibration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mttp.study.diagnosing.agreement import Intraclass, intraclass
from mttp.study.diagnosing.certainty import CERTAIN, LIKELY, severity_of
from mttp.study.diagnosing.evidence import RunEvidence, Scoring
from mttp.study.diagnosing.trends import share_of, trend_of
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged

if TYPE_CHECKING:
    from numpy.typing import NDArray

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"
Floats: TypeAlias = "NDArray[np.float64]"

MISSING = (0.2, 0.05, 0.01)
"""Shares of episodes without a sound reward that are high, medium, low: those left are a selection."""
FEWEST_EPISODES = 20
FEWEST_REPEATED = 10
"""Trajectories that were scored repeatedly: an ICC of fewer has an interval as wide as its range."""
NOISE = (0.5, 0.25)
"""Shares of the variance of rewards that are noise of the grader: high and medium (ICC below 0.5 and 0.75 are
poor and moderate, Koo and Li 2016)."""
DRIFT = 0.5
"""The least change of the rewards of equal completions, in standard deviations of all rewards."""


def missing_rewards(run: RunEvidence) -> Result:
    """
    Judge the share of episodes that failed, or whose reward is missing, failed or only partial.

    A return from the rewards of steps is a reward.
    """
    attempted = [at for at in run.attempted if run.is_counted[at] or run.episodes[at].status == "error"]
    if not attempted:
        return NotJudged(reason="no episode that is trained on ended")
    statuses = [_status(run, int(at)) for at in attempted]
    counts = Counter(statuses)
    share = share_of([status != "ok" for status in statuses])
    others = ", ".join(f"{status} {count:,}" for status, count in counts.most_common() if status != "ok")
    evidence = (
        f"{share} of the episodes have no sound reward{f' ({others})' if others else ''} (Wilson, 95 %)"
    )
    severity = severity_of(share.value, MISSING)
    if severity is None or share.count == 1:
        return Cleared(evidence=evidence)
    bad = [at for at, status in zip(attempted, statuses, strict=True) if status != "ok"]
    rewards = [run.scorings[at] for at in bad]
    return DiagnosisFinding(
        severity=severity,
        evidence="; ".join([evidence, *_effect_of_partial(run, attempted), *_reasons(rewards)]),
        confidence=CERTAIN,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method="share of episodes whose reward is not ok, counted; Wilson interval",
        episodes=run.examples(bad),
    )


def _effect_of_partial(run: RunEvidence, places: Iterable[int]) -> Iterator[str]:
    """Yield how much less reward and advantage the episodes have whose reward lacks a component."""
    positions = [*places]
    for name in ("reward", "advantage"):
        values: dict[str, list[float]] = {"ok": [], "partial": []}
        for at in positions:
            episode = run.episodes[at]
            value = episode.reward if name == "reward" else run.facts[at].advantage
            if value is not None and math.isfinite(value) and episode.reward_status in values:
                values[episode.reward_status].append(value)
        if values["ok"] and values["partial"]:
            partial, whole = (float(np.mean(values[status])) for status in ("partial", "ok"))
            yield f"mean {name} of those that lack a component {partial:.3g}, of the others {whole:.3g}"


def _reasons(rewards: Sequence[Scoring]) -> list[str]:
    """Return the most frequent error or lacking component of these rewards, with its count."""
    reasons: Counter[str] = Counter()
    for reward in rewards:
        lacking = [f"{name} {status}" for name, status in reward.component_statuses.items()]
        reasons.update(lacking if reward.error is None else [reward.error])
    return [f"most often {reason:.200} ({times:,})" for reason, times in reasons.most_common(1)]


def _status(run: RunEvidence, at: int) -> str:
    status = run.episodes[at].reward_status
    if not run.is_counted[at]:
        return "of an episode that failed"
    if status not in ("ok", "missing"):
        return status
    if run.behaviors[at].has_failed:
        return "error in a step"
    if math.isfinite(run.rewards[at]):
        return "ok"
    return "too large" if run.has_reward[at] else "missing"


# Repeated scores.


def _agreement(scores: Iterable[Sequence[float]]) -> Intraclass | None:
    """The agreement; None for fewer than `FEWEST_REPEATED` things that were scored repeatedly."""
    agreement = intraclass(scores)
    return None if agreement is None or agreement.n < FEWEST_REPEATED else agreement


def _repeated_scores(run: RunEvidence) -> dict[int, list[float]]:
    """Values that one version of one grader gave the same trajectory, by position of the episode."""
    repeated: dict[int, list[float]] = {}
    for at in run.trained:
        values = [*run.scorings[at].repeats]
        by_grader: dict[tuple[str, str], list[float]] = {}
        for score in run.scores[at]:
            if score.value is not None and math.isfinite(score.value):
                by_grader.setdefault((score.grader, score.grader_version or ""), []).append(score.value)
        several = max(by_grader.values(), key=len, default=[])
        if max(len(values), len(several)) >= 2:
            repeated[int(at)] = values if len(values) > len(several) else several
    return repeated


def _equal_completions(run: RunEvidence) -> dict[Hashable, list[int]]:
    """Positions of the episodes of one task whose policy did the same, where there are several."""
    groups: dict[Hashable, list[int]] = {}
    for at in run.trained:
        episode = run.episodes[at]
        same = run.behaviors[at].answer
        if episode.task is not None and same is not None and math.isfinite(run.rewards[at]):
            groups.setdefault((episode.env, episode.task, same), []).append(int(at))
    return {key: places for key, places in groups.items() if len(places) >= 2}


def grader_noise(run: RunEvidence) -> Result:
    """Judge how much of the variance of rewards is noise of the grader, from repeated scores."""
    repeated = _repeated_scores(run)
    what, scores = "trajectories scored repeatedly", [*repeated.values()]
    if len(scores) < FEWEST_REPEATED:
        what = "equal completions of one task"
        same = _equal_completions(run)
        scores = [[float(run.rewards[at]) for at in places] for places in same.values()]
        repeated = {places[0]: [] for places in same.values()}
    agreement = _agreement(scores)
    if agreement is None:
        return NotJudged(
            reason=f"fewer than {FEWEST_REPEATED} trajectories were scored twice by one grader, "
            "or scores never differ"
        )
    evidence = f"of the variance of rewards the grader's noise is {agreement}, {what}"
    high, medium = NOISE
    if agreement.noise < medium:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="high" if agreement.noise_interval[0] >= high else "medium",
        evidence=evidence,
        confidence=LIKELY
        if agreement.noise_interval[0] >= medium
        else "likely: the estimate is beyond the threshold",
        value=agreement.noise,
        interval=agreement.noise_interval,
        n=agreement.n,
        method="1 - ICC(1) of repeated scores, F interval (Shrout and Fleiss 1979)",
        episodes=run.examples(repeated),
    )


def grader_drift(run: RunEvidence) -> Result:
    """Judge whether the grader changes while the policy trains: its version, or its rewards of the same."""
    versions = _versions(run.scorings[at] for at in run.trained)
    same = _equal_completions(run)
    at = np.array([place for places in same.values() for place in places], dtype=np.int64)
    scale = float(np.nanstd(run.rewards)) if np.isfinite(run.rewards).any() else 0.0
    trend, evidence = None, ""
    if len(at) >= 2 * FEWEST_REPEATED and scale > 0:
        shift = np.concatenate(
            [run.rewards[places] - run.rewards[places].mean() for places in map(np.array, same.values())]
        )
        order = np.argsort(at)
        trend = trend_of(at[order].astype(float), shift[order])
        evidence = f"rewards of {len(same):,} equal completions at different times: {trend}"
    if len(versions) > 1:
        listed = ", ".join(f"{name} ({count:,})" for name, count in versions.items())
        return DiagnosisFinding(
            severity="medium",
            evidence=f"{len(versions)} versions scored one run: {listed}"
            + (f"; {evidence}" if evidence else ""),
            confidence=CERTAIN,
            value=float(len(versions)),
            n=sum(versions.values()),
            method="versions of grader and reward spec, counted",
            episodes=run.examples(_first_of_each_version(run)),
        )
    if trend is None:
        known = "" if not versions else f"one version, {next(iter(versions))}, scored all; "
        return NotJudged(
            reason=f"{known}fewer than {2 * FEWEST_REPEATED} equal completions of one task were scored at "
            "different times" + ("" if versions else ", and no grader version or reward spec is recorded")
        )
    if trend.direction not in ("up", "down") or abs(trend.change) < DRIFT * scale:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium",
        evidence=evidence,
        confidence=LIKELY,
        value=trend.change,
        interval=trend.interval,
        n=trend.n,
        method="least-squares slope of the rewards of equal completions around their mean, 95 % interval",
        episodes=run.examples(at[order]),
    )


def _version(reward: Scoring) -> str | None:
    if reward.spec_name is not None:
        return f"{reward.spec_name} {reward.spec_version or (reward.spec_sha256 or '?')[:8]}"
    if reward.grader_version is not None:
        return f"{reward.grader or 'grader'} {reward.grader_version}"
    return None


def _versions(rewards: Iterable[Scoring]) -> Mapping[str, int]:
    return Counter(name for reward in rewards if (name := _version(reward)) is not None)


def _first_of_each_version(run: RunEvidence) -> list[int]:
    first: dict[str, int] = {}
    for at in run.trained:
        name = _version(run.scorings[at])
        if name is not None:
            first.setdefault(name, int(at))
    return list(first.values())
