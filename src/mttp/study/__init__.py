"""Studies of recordings: whether a run is better than another, by statistics that state their method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.study.comparing import compare
    from mttp.study.comparison import Comparison, Flip, MetricComparison
    from mttp.study.differences import SideDifference
    from mttp.study.gate_result import GateResult, RuleResult
    from mttp.study.gating import gate
    from mttp.study.rescoring import RescoredRecording, RewardChange, rescore
    from mttp.study.rules import PromotionRules

__all__ = [
    "Comparison",
    "Flip",
    "GateResult",
    "MetricComparison",
    "PromotionRules",
    "RescoredRecording",
    "RewardChange",
    "RuleResult",
    "SideDifference",
    "compare",
    "gate",
    "rescore",
]

__getattr__, __dir__ = exports(
    __name__,
    {
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
