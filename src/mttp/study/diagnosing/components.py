"""Detectors of the components of a reward: against each other, without a signal, or absent."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.certainty import CERTAIN, HINT, LIKELY
from mttp.study.diagnosing.evidence import RunEvidence
from mttp.study.diagnosing.trends import FEWEST, TimeTrend, share_of
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"

FEWEST_EPISODES = 20
ABSENT = 0.05
"""The share of rewards without a component from which on it matters."""
ALPHA = 0.01


def component_trends(run: RunEvidence) -> dict[str, TimeTrend]:
    """The trend of each component that has enough scores."""
    trends = {name: run.trend(scores) for name, scores in run.components.items()}
    return {name: trend for name, trend in trends.items() if trend is not None}


def diverging_components(run: RunEvidence) -> Result:
    """Judge whether some components of the reward rise while others fall."""
    trends = component_trends(run)
    if len(trends) < 2:
        return NotJudged(reason=f"{len(trends):,} components have {FEWEST} scores, not 2")
    evidence = ", ".join(f"`{name}` {trend}" for name, trend in trends.items())
    falling = [name for name, trend in trends.items() if trend.direction == "down"]
    if not falling or all(trend.direction != "up" for trend in trends.values()):
        return Cleared(evidence=evidence)
    first = trends[falling[0]]
    return DiagnosisFinding(
        severity="low",
        evidence=evidence,
        confidence=HINT,
        value=first.change,
        interval=first.interval,
        n=first.n,
        method="least-squares slopes of the components over windows of training time, 95 % intervals",
        episodes=run.examples(run.recent()),
    )


def dead_components(run: RunEvidence) -> Result:
    """Judge whether a component always has the same score, and so gives no signal."""
    known = {name: scores[np.isfinite(scores)] for name, scores in run.components.items()}
    known = {name: scores for name, scores in known.items() if len(scores) >= FEWEST_EPISODES}
    if not known:
        return NotJudged(reason=f"no component has {FEWEST_EPISODES} scores")
    dead = {name: scores for name, scores in known.items() if not np.ptp(scores)}
    if not dead:
        return Cleared(evidence=f"each of {len(known):,} components varies")
    listed = ", ".join(f"`{name}` {scores[0]:g} (n={len(scores):,})" for name, scores in dead.items())
    return DiagnosisFinding(
        severity="low",
        evidence=f"always the same score: {listed}",
        confidence=CERTAIN,
        value=float(len(dead)),
        n=max(map(len, dead.values())),
        method="components whose scores are all equal, counted",
        episodes=run.examples(run.recent()),
    )


def missing_components(run: RunEvidence) -> Result:
    """Judge whether rewards lack a component that others have, and what these rewards lose by it."""
    at = run.trained[[bool(run.scorings[place].components) for place in run.trained]]
    if len(at) < FEWEST_EPISODES:
        return NotJudged(reason=f"{len(at):,} rewards have components, not {FEWEST_EPISODES}")
    name = max(run.components, key=lambda name: np.isnan(run.components[name][at]).sum())
    is_absent = np.isnan(run.components[name][at])
    share = share_of(is_absent)
    evidence = f"{share} of the rewards lack `{name}` (Wilson, 95 %)"
    first, second = (run.rewards[at[flags]] for flags in (is_absent, ~is_absent))
    first, second = first[np.isfinite(first)], second[np.isfinite(second)]
    p_value = 1.0
    if min(len(first), len(second)) >= FEWEST and np.ptp([*first, *second]):
        p_value = float(scipy_stats().mannwhitneyu(first, second).pvalue)
        gap = float(first.mean() - second.mean())
        evidence += f"; these have {abs(gap):.3g} {'less' if gap < 0 else 'more'} reward "
        evidence += f"(Mann-Whitney, p={p_value:.2g})"
    if share.value < ABSENT or share.low < ABSENT / 2:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium" if p_value <= ALPHA else "low",
        evidence=evidence,
        confidence=LIKELY if p_value <= ALPHA else CERTAIN,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method="share of rewards without the component, Wilson interval; Mann-Whitney test of the rewards",
        episodes=run.examples(at[is_absent]),
    )
