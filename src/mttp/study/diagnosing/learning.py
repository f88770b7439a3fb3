"""Detectors of rewards that teach nothing: no variance, hardly any reward, or a plateau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.certainty import CERTAIN, LIKELY, severity_of
from mttp.study.diagnosing.evidence import EXAMPLES, RunEvidence
from mttp.study.diagnosing.trends import FEWEST, FLAT, share_of
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged, Severity

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"

FEWEST_GROUPS = 10
"""Groups that a share needs: with fewer, its interval is wider than 0.5."""
FEWEST_EPISODES = 20
ZERO_VARIANCE = (0.8, 0.5, 0.3)
"""Shares of groups without a gradient that are high, medium, low: at 0.5, half of the samples are wasted."""
SPARSE = 0.05
"""With a larger share of rewarded episodes, a batch of 64 nearly always has a reward (0.95**64 = 0.04)."""
SPARSE_HIGH = 0.01
TRUNCATED = 0.1
"""A share of truncated episodes that biases the reward."""
TRUNCATED_HIGH = 0.5


def zero_variance_groups(run: RunEvidence) -> Result:
    """
    Judge the share of recent groups whose rewards are all equal: they give no gradient (GRPO, RLOO).

    Groups in which every reward is the highest are solved: they make a finding of the severity low at most.
    """
    groups = _groups(run)
    if len(groups) < FEWEST_GROUPS:
        return NotJudged(reason=f"{len(groups):,} groups have two rewards or more, not {FEWEST_GROUPS}")
    recent = groups[len(groups) - max(FEWEST_GROUPS, math.ceil(len(groups) / 3)) :]
    flags = [float(np.ptp(rewards)) == 0 for _, rewards in recent]
    share = share_of(flags)
    top, lowest = (float(pick([pick(rewards) for _, rewards in groups])) for pick in (np.max, np.min))
    equal_to = [float(rewards[0]) if flag else None for flag, (_, rewards) in zip(flags, recent, strict=True)]
    highest = equal_to.count(top) if top > lowest else 0
    unsolved = share_of([value is not None and (value != top or top == lowest) for value in equal_to])
    which = f"{highest:,} at the highest reward, {share.count - highest:,} below"
    if top == lowest:
        which = f"every reward of the run is {top:g}"
    evidence = f"{share} of the recent groups have equal rewards: {which} (Wilson, 95 %)"
    severity = severity_of(unsolved.low, ZERO_VARIANCE) or ("low" if share.low >= ZERO_VARIANCE[-1] else None)
    if severity is None:
        return Cleared(evidence=evidence)
    members = [ids[0] for flag, (ids, _) in zip(flags, recent, strict=True) if flag]
    return DiagnosisFinding(
        severity=severity,
        evidence=evidence,
        confidence=LIKELY,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method="share of the groups of the last third without variance, Wilson interval",
        episodes=tuple(members[-EXAMPLES:]),
    )


def _groups(run: RunEvidence) -> list[tuple[Sequence[str], np.ndarray]]:
    """Members and finite rewards of each group with two or more, in order of start."""
    recorded = [(group["episodes"], np.array(group["rewards"], dtype=float)) for group in run.groups]
    if not recorded:
        members: dict[str, list[int]] = {}
        for at in run.trained:
            if (name := run.episodes[at].group) is not None:
                members.setdefault(name, []).append(int(at))
        recorded = [
            (tuple(run.episodes[at].trace_id for at in places), run.rewards[places])
            for places in members.values()
        ]
    finite = [(ids, rewards[np.isfinite(rewards)]) for ids, rewards in recorded if len(ids)]
    return [(ids, rewards) for ids, rewards in finite if len(rewards) >= 2]


def sparse_rewards(run: RunEvidence) -> Result:
    """Judge whether recent rewards hardly ever exceed the lowest one."""
    every = run.trained[np.isfinite(run.rewards[run.trained])]
    recent = run.recent()[np.isfinite(run.rewards[run.recent()])]
    if len(recent) < FEWEST_EPISODES:
        return NotJudged(reason=f"{len(recent):,} rewards in the last third, not {FEWEST_EPISODES}")
    lowest, highest = float(run.rewards[every].min()), float(run.rewards[every].max())
    if lowest == highest > 0:
        return NotJudged(
            reason=f"all rewards are {lowest:g}: it is unknown whether that is the lowest possible reward"
        )
    period, at = "last third", recent
    if lowest == highest:  # all of them say more than a third
        period, at = "run", every
    is_rewarded = run.rewards[at] > lowest
    share = share_of(is_rewarded)
    evidence = f"{share} of the {period} have more than the lowest reward, {lowest:g} (Wilson, 95 %)"
    if share.value > SPARSE:
        return Cleared(evidence=evidence)
    if share.high > 2 * SPARSE:
        return NotJudged(reason=f"{evidence}: the interval is too wide for a share of {SPARSE:.0%}")
    return DiagnosisFinding(
        severity="high" if share.value <= SPARSE_HIGH else "medium",
        evidence=evidence,
        confidence=LIKELY,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method=f"share of the rewards above the lowest in the {period}, Wilson interval",
        episodes=run.examples(at[is_rewarded] if is_rewarded.any() else at),
    )


def saturation(run: RunEvidence) -> Result:
    """
    Judge whether reward, and quality where there is one, are on a plateau in the last half.

    A plateau is an equivalence: the least-squares interval lies within half a standard deviation of zero.
    """
    trend = run.trend(run.rewards, run.recent(1 / 2))
    if trend is None:
        return NotJudged(reason=f"fewer than {FEWEST} rewards in the last half")
    evidence, quality = f"last half: reward {trend}", None
    if run.quality is not None:
        positions = run.quality_positions
        quality = run.trend(run.quality, positions[positions >= len(run.episodes) // 2])
        if quality is not None:
            evidence += f"; {run.quality_name} {quality}"
    directions = {half_trend.direction for half_trend in (trend, quality) if half_trend is not None}
    if directions & {"up", "down"}:
        return Cleared(evidence=evidence)
    if "unclear" in directions:
        return NotJudged(
            reason=f"{evidence}: neither a change nor a plateau within {FLAT:g} SD is shown; "
            "more episodes are needed"
        )
    return DiagnosisFinding(
        severity="low",
        evidence=evidence,
        confidence=LIKELY if trend.spread else CERTAIN,
        value=trend.change,
        interval=trend.interval,
        n=trend.n,
        method=f"least-squares interval of the last half within {FLAT:g} SD of zero, an equivalence test",
        episodes=run.examples(run.recent()),
    )


def truncation(run: RunEvidence) -> Result:
    """Judge the share of recent episodes that a limit cut off, and whether it costs them reward."""
    recent = run.attempted[len(run.attempted) * 2 // 3 :]
    flags = np.array([_is_truncated(run, int(at)) for at in recent], dtype=float)
    recent, flags = recent[np.isfinite(flags)], flags[np.isfinite(flags)] == 1
    if len(recent) < FEWEST_EPISODES:
        return NotJudged(
            reason=f"{len(recent):,} episodes of the last third say whether they were truncated, "
            f"not {FEWEST_EPISODES}"
        )
    share = share_of(flags)
    evidence = f"{share} of the last third were truncated (Wilson, 95 %)"
    if share.low <= TRUNCATED:
        return Cleared(evidence=evidence)
    cut, whole = run.rewards[recent[flags]], run.rewards[recent[~flags]]
    cut, whole = cut[np.isfinite(cut)], whole[np.isfinite(whole)]
    costs = False
    if min(len(cut), len(whole)) >= FEWEST:
        p_value = float(scipy_stats().mannwhitneyu(cut, whole).pvalue)
        evidence += f"; reward {cut.mean():.3g} of these, {whole.mean():.3g} of the others "
        evidence += f"(Mann-Whitney, p={p_value:.2g})"
        costs = bool(p_value <= 0.05 and cut.mean() < whole.mean())
        if not costs:
            return Cleared(evidence=evidence)
    severity: Severity = "low" if not costs else "high" if share.low > TRUNCATED_HIGH else "medium"
    return DiagnosisFinding(
        severity=severity,
        evidence=evidence,
        confidence=LIKELY,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method="share of truncated episodes in the last third, Wilson interval",
        episodes=run.examples(recent[flags]),
    )


def _is_truncated(run: RunEvidence, at: int) -> float:
    episode = run.episodes[at]
    if episode.truncated is not None:
        return float(episode.truncated)
    if episode.stop_reason is not None:
        return float(episode.stop_reason in ("length", "max_tokens", "time_limit", "timeout"))
    return math.nan
