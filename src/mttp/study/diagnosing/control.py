"""Detectors of classic reinforcement learning: environments, actions, critics and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from mttp.model.nesting import from_json
from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.certainty import CERTAIN, HINT, LIKELY
from mttp.study.diagnosing.evidence import RunEvidence
from mttp.study.diagnosing.seeds import LARGE, seed_gap
from mttp.study.diagnosing.trends import FEWEST, share_of
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged
from mttp.study.registered_defaults import registered_default

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"

AT_LIMIT = 0.05
"""The share of episodes with a wrong end from which on values are learned wrongly."""
HARDLY = 0.01
"""The part of an equal share below which an action is hardly taken."""
STEPS_PER_ACTION = 50
FEWEST_UPDATES = 9
GROWTH = 10.0
"""The growth of value loss and gradient norm between the thirds of a run that a clipped step can't follow."""
ALPHA = 0.01


def space_of(run: RunEvidence, which: str) -> Mapping[str, Any] | None:
    """The observation or action space of the environment of the run; None unless there is one of one kind."""
    spaces = [_document(run.episodes[at].env_spaces).get(which) for at in run.trained]
    first = next((space for space in spaces if space), None)
    return first if first is not None and all(space in (None, first) for space in spaces) else None


def entropy_bound(run: RunEvidence) -> float | None:
    """The largest entropy of a policy in nats; None where the actions are not discrete."""
    space = space_of(run, "action") or {}
    if space.get("type") == "Discrete":
        return math.log(space["n"]) or None
    if space.get("type") == "MultiDiscrete":
        return float(np.log(np.ravel(space["nvec"])).sum()) or None
    return float(np.prod(space["n"])) * math.log(2) if space.get("type") == "MultiBinary" else None


def limit_terminated(run: RunEvidence) -> Result:
    """Judge whether episodes that end at the time limit of their environment say that they terminated."""
    limits = {name: _limit(name, kwargs) for name, kwargs in _environments(run).items()}
    at = [at for at in run.trained if limits[run.episodes[at].env] and run.facts[at].terminated is not None]
    if not at:
        return NotJudged(reason="no environment with a registered time limit")
    flags = [
        bool(run.facts[place].terminated)
        and not run.episodes[place].truncated
        and run.episodes[place].length == limits[run.episodes[place].env]
        for place in at
    ]
    share = share_of(flags)
    evidence = f"{share} of the episodes end at the limit of their environment, marked terminated"
    if share.count < 2:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium" if share.value >= AT_LIMIT else "low",
        evidence=evidence,
        confidence=CERTAIN,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method="episodes as long as the registered limit that are terminated and not truncated, counted",
        episodes=run.examples([place for place, flag in zip(at, flags, strict=True) if flag]),
    )


def _environments(run: RunEvidence) -> dict[str, Mapping[str, Any]]:
    return {run.episodes[at].env: _document(run.episodes[at].env_kwargs) for at in run.trained}


@lru_cache(maxsize=64)
def _document(text: str | None) -> Mapping[str, Any]:
    document = {} if text is None else from_json(text)
    return document if isinstance(document, Mapping) else {}


def _limit(name: str, kwargs: Mapping[str, Any]) -> int | None:
    """The time limit of an environment: the recorded one, else the one registered with Gymnasium."""
    limit = kwargs.get("max_episode_steps")
    if limit is None:
        limit = registered_default(name, "max_episode_steps")
    return int(limit) if limit is not None and limit > 0 else None


def dead_actions(run: RunEvidence) -> Result:
    """Judge whether an action of a discrete space is hardly ever taken."""
    space = space_of(run, "action")
    if space is None or space.get("type") != "Discrete":
        return NotJudged(reason="no discrete action space is recorded")
    start, size = int(space.get("start", 0)), int(space["n"])
    actions = {part: run.taken(places) for part, places in (("run", run.trained), ("last", run.recent()))}
    total = sum(actions["run"].values())
    if total < STEPS_PER_ACTION * size:
        return NotJudged(reason=f"{total:,} recorded actions, not {STEPS_PER_ACTION} for each of {size:,}")
    dead = {
        part: [
            action
            for action in range(start, start + size)
            if counts[action] < HARDLY / size * sum(counts.values())
        ]
        for part, counts in actions.items()
    }
    part = "run" if dead["run"] else "last"
    period = "over the run" if part == "run" else "in the last third"
    if not dead[part]:
        return Cleared(evidence=f"each of {size:,} actions is taken (n={total:,} steps)")
    listed = ", ".join(f"{action} ({actions[part][action]:,} times)" for action in dead[part][:5])
    return DiagnosisFinding(
        severity="medium" if part == "run" else "low",
        evidence=f"hardly taken {period}: {listed}; {sum(actions[part].values()):,} steps, {size:,} actions",
        confidence=CERTAIN if part == "run" else HINT,
        value=float(len(dead[part])),
        n=sum(actions[part].values()),
        method=f"actions taken less than {HARDLY:.0%} of an equal share, counted",
        episodes=run.examples(run.recent()),
    )


def constant_observations(run: RunEvidence) -> Result:
    """Judge whether dimensions of the observation never change."""
    space = space_of(run, "observation")
    if space is None or space.get("type") != "Box" or len(space.get("shape", ())) != 1:
        return NotJudged(reason="no vectors are observed")
    size = int(space["shape"][0])
    low, high, number = run.observed(size)
    if number < STEPS_PER_ACTION:
        return NotJudged(reason=f"{number:,} recorded observations, not {STEPS_PER_ACTION}")
    constant = np.flatnonzero(low == high)
    if not len(constant):
        return Cleared(evidence=f"each of {size:,} dimensions varies (n={number:,} steps)")
    listed = ", ".join(f"{at} ({low[at]:g})" for at in constant[:5])
    return DiagnosisFinding(
        severity="medium" if 2 * len(constant) >= size else "low",
        evidence=f"{len(constant):,} of {size:,} dimensions never change: {listed} (n={number:,} steps)",
        confidence=CERTAIN,
        value=float(len(constant)),
        n=number,
        method="dimensions of the observation with one value, counted",
        episodes=run.examples(run.recent()),
    )


def explained_variance(run: RunEvidence) -> Result:
    """Judge whether the critic explains nothing of the returns in the last third of the updates."""
    values = run.update_series("explained_variance")
    if len(values) < FEWEST_UPDATES:
        return NotJudged(reason=f"{len(values):,} updates have explained_variance, not {FEWEST_UPDATES}")
    recent = values[len(values) - max(FEWEST, len(values) // 3) :]
    p_value = float(
        scipy_stats().binomtest(int((recent <= 0).sum()), len(recent), alternative="greater").pvalue
    )
    evidence = (
        f"explained variance of the last {len(recent):,} updates: median {np.median(recent):.3g}, "
        f"{int((recent <= 0).sum()):,} at most 0 (sign test, p={p_value:.2g})"
    )
    if p_value > ALPHA:
        return Cleared(evidence=evidence)
    learns = run.reward_trend is not None and run.reward_trend.direction == "up"
    return DiagnosisFinding(
        severity="low" if learns else "medium",
        evidence=evidence,
        confidence=LIKELY,
        value=float(np.median(recent)),
        p_value=p_value,
        n=len(recent),
        method="sign test of the explained variance of the last third of the updates",
        episodes=run.examples(run.recent()),
    )


def growing_losses(run: RunEvidence) -> Result:
    """Judge whether value loss and gradient norm grow with the scale of the rewards."""
    grown: dict[str, tuple[float, float]] = {}
    evidence = []
    for name in ("value_loss", "grad_norm"):
        values = run.update_series(name)
        if len(values) < FEWEST_UPDATES:
            continue
        third = len(values) // 3
        early, late = values[:third], values[-third:]
        p_value = float(scipy_stats().mannwhitneyu(late, early, alternative="greater").pvalue)
        before, after = float(np.median(early)), float(np.median(late))
        evidence.append(
            f"{name} {before:.3g} -> {after:.3g} (Mann-Whitney, p={p_value:.2g}, n={len(values):,})"
        )
        if p_value <= ALPHA * 5 and before > 0 and after >= GROWTH * before:
            grown[name] = after / before, p_value
    if not evidence:
        return NotJudged(reason=f"fewer than {FEWEST_UPDATES} updates have value_loss or grad_norm")
    if not grown:
        return Cleared(evidence="; ".join(evidence))
    growth, p_value = max(grown.values())
    return DiagnosisFinding(
        severity="medium" if len(grown) == len(evidence) == 2 else "low",
        evidence=f"{'; '.join(evidence)}; the size of the recent rewards is {_scale(run):.3g}",
        confidence=LIKELY,
        value=growth,
        p_value=p_value,
        n=len(run.updates),
        method=f"medians of the thirds {GROWTH:g} times apart; one-sided Mann-Whitney test",
        episodes=run.examples(run.recent()),
    )


def _scale(run: RunEvidence) -> float:
    rewards = run.rewards[run.recent()]
    return float(np.nanmax(np.abs(rewards))) if np.isfinite(rewards).any() else math.nan


def seed_collapse(run: RunEvidence) -> Result:
    """Judge whether this run ends far below the other runs of the source."""
    name = run.episodes[0].run
    gap = seed_gap(run.levels, name)
    if gap is None:
        return NotJudged(reason=f"fewer than 3 runs of one environment with {3 * FEWEST} episodes each")
    evidence = (
        f"the last third of {name} has reward {gap.level:.3g}, the {gap.runs - 1:,} others {gap.others:.3g} "
        f"(t test of one value against the others, p={gap.p_value:.2g} corrected for {gap.runs:,} runs)"
    )
    if not gap.is_collapse:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="high" if gap.size >= 2 * LARGE else "medium",
        evidence=evidence,
        confidence=LIKELY,
        value=gap.size if math.isfinite(gap.size) else None,
        p_value=gap.p_value,
        n=gap.runs,
        method="one-sided t test of the mean of one run against those of the others, Bonferroni",
        episodes=run.examples(run.recent()),
    )
