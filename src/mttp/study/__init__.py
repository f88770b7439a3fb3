"""Studies of recordings: whether a run is better than another, by statistics that state their method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.study.comparing import compare
    from mttp.study.comparison import Comparison, Flip, MetricComparison
    from mttp.study.diagnosing.detectors import diagnose
    from mttp.study.diagnosis import Cleared, Diagnosis, DiagnosisFinding, NotJudged, TrainingReading
    from mttp.study.differences import SideDifference
    from mttp.study.gate_result import GateResult, RuleResult
    from mttp.study.gating import gate
    from mttp.study.rescoring import RescoredRecording, RewardChange, rescore
    from mttp.study.rules import PromotionRules

__all__ = [
    "Cleared",
    "Comparison",
    "Diagnosis",
    "DiagnosisFinding",
    "Flip",
    "GateResult",
    "MetricComparison",
    "NotJudged",
    "PromotionRules",
    "RescoredRecording",
    "RewardChange",
    "RuleResult",
    "SideDifference",
    "TrainingReading",
    "compare",
    "diagnose",
    "gate",
    "rescore",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Cleared": "diagnosis",
        "Comparison": "comparison",
        "Diagnosis": "diagnosis",
        "DiagnosisFinding": "diagnosis",
        "Flip": "comparison",
        "GateResult": "gate_result",
        "MetricComparison": "comparison",
        "NotJudged": "diagnosis",
        "PromotionRules": "rules",
        "RescoredRecording": "rescoring",
        "RewardChange": "rescoring",
        "RuleResult": "gate_result",
        "SideDifference": "differences",
        "TrainingReading": "diagnosis",
        "compare": "comparing",
        "diagnose": "diagnosing.detectors",
        "gate": "gating",
        "rescore": "rescoring",
    },
)
