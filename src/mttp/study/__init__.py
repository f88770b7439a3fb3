"""Studies of recordings: whether a run is better than another, by statistics that state their method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.study.alignment import Alignment, align
    from mttp.study.branching import branch
    from mttp.study.comparing import compare
    from mttp.study.comparison import Comparison, Flip, MetricComparison
    from mttp.study.differences import SideDifference
    from mttp.study.gate_result import GateResult, RuleResult
    from mttp.study.gating import gate
    from mttp.study.recorded_calls import RecordedCalls
    from mttp.study.replaying import Divergence, Replay, replay
    from mttp.study.rescoring import RescoredRecording, RewardChange, rescore
    from mttp.study.rules import PromotionRules

__all__ = [
    "Alignment",
    "Comparison",
    "Divergence",
    "Flip",
    "GateResult",
    "MetricComparison",
    "PromotionRules",
    "RecordedCalls",
    "Replay",
    "RescoredRecording",
    "RewardChange",
    "RuleResult",
    "SideDifference",
    "align",
    "branch",
    "compare",
    "gate",
    "replay",
    "rescore",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Alignment": "alignment",
        "Divergence": "replaying",
        "RecordedCalls": "recorded_calls",
        "Replay": "replaying",
        "align": "alignment",
        "branch": "branching",
        "replay": "replaying",
        "Comparison": "comparison",
        "Flip": "comparison",
        "GateResult": "gate_result",
        "MetricComparison": "comparison",
        "PromotionRules": "rules",
        "RescoredRecording": "rescoring",
        "RewardChange": "rescoring",
        "RuleResult": "gate_result",
        "SideDifference": "differences",
        "compare": "comparing",
        "gate": "gating",
        "rescore": "rescoring",
    },
)
