"""Validation and reward read together: the table of their trends, and what a trainer should do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mttp.study.diagnosing.evidence import RunEvidence
from mttp.study.diagnosing.trends import FEWEST, TimeTrend
from mttp.study.diagnosis import DiagnosisFinding, TrainingReading

READINGS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("up", "up", "learning: what is rewarded is what is wanted", "continue"),
    ("up", "flat", "improving although the reward does not show it: the reward is too coarse", "continue"),
    ("up", "down", "improving while the reward falls: another grader, or harder tasks", "watch"),
    ("flat", "up", "the reward rises alone: overfitting or reward hacking", "watch"),
    ("flat", "flat", "a plateau: nothing more is learned", "finish"),
    ("flat", "down", "the reward falls alone: instability, a penalty or harder training tasks", "watch"),
    ("down", "up", "reward hacking or overfitting: the reward rises at the cost of the quality", "stop"),
    ("down", "flat", "forgetting: quality is lost for no reward", "stop"),
    ("down", "down", "collapse: the policy gets worse by every measure", "stop"),
)
"""Validation, reward, meaning, action."""
STOPPING: Final = frozenset(
    {"reward_hacking", "over_optimization", "entropy_collapse", "forgetting", "update_spike"}
)
"""Kinds of findings that, with the severity high, get worse by training on."""


_NO_QUALITY = f"no quality: fewer than {FEWEST} late scores, held-out rewards and outcomes were recorded"


def reading_of(run: RunEvidence) -> TrainingReading:
    """The reading of a run by the trends of its quality and its reward."""
    validation, reward = _direction(run.quality_trend), _direction(run.reward_trend)
    meaning, action = _meaning(validation, reward, has_quality=run.quality is not None)
    return TrainingReading(
        validation=validation,
        reward=reward,
        validation_trend=_NO_QUALITY
        if run.quality_name is None
        else _described(run.quality_trend, run.quality_name),
        reward_trend=_described(run.reward_trend, "reward"),
        meaning=meaning,
        action=action,
        table=READINGS,
    )


def _direction(trend: TimeTrend | None) -> str:
    return "unknown" if trend is None else trend.direction


def _described(trend: TimeTrend | None, name: str) -> str:
    return f"{name}: fewer than {FEWEST} values, no trend" if trend is None else f"{name} {trend}"


def _meaning(validation: str, reward: str, *, has_quality: bool) -> tuple[str, str]:
    for validation_trend, reward_trend, meaning, action in READINGS:
        if (validation_trend, reward_trend) == (validation, reward):
            return meaning, action
    if not has_quality:
        return f"reward {reward}, and it is unknown whether that is good: no quality was recorded", "measure"
    return f"validation {validation}, reward {reward}: more episodes are needed to tell", "measure"


def stopping(reading: TrainingReading, findings: Sequence[DiagnosisFinding]) -> tuple[bool, str]:
    """Whether to stop, and what to do next in a sentence."""
    harmful = [finding for finding in findings if finding.severity == "high" and finding.kind in STOPPING]
    if harmful:
        return True, f"stop: {harmful[0].kind}; {harmful[0].advice}"
    if reading.action == "stop":
        return True, f"stop: {reading.meaning}"
    pressing = [finding for finding in findings if finding.severity in ("high", "medium")]
    if pressing:
        return False, f"continue only after a look at {pressing[0].kind}: {pressing[0].advice}"
    return False, f"{reading.action}: {reading.meaning}"
