"""Studies of recordings: whether a run is better than another, by statistics that state their method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.model.divergence import KlEstimates, kl_estimates
    from mttp.model.statistics.metric_comparison import MetricComparison
    from mttp.study.alignment import Alignment, align
    from mttp.study.buckets import FailureBucket, failure_buckets
    from mttp.study.comparing import compare
    from mttp.study.comparison import Comparison, Flip
    from mttp.study.diagnosing.detectors import diagnose
    from mttp.study.diagnosis import Cleared, Diagnosis, DiagnosisFinding, NotJudged, TrainingReading
    from mttp.study.differences import SideDifference
    from mttp.study.gate_result import GateResult, RuleResult
    from mttp.study.gating import gate
    from mttp.study.learning_curves import Curve, Curves, curves
    from mttp.study.pareto_front import ParetoPoint, pareto
    from mttp.study.preferences import PreferenceStrength, preference_strengths
    from mttp.study.recorded_calls import RecordedCalls
    from mttp.study.rules import PromotionRules
    from mttp.workflows.branching import branch
    from mttp.workflows.replaying import Divergence, Replay, replay
    from mttp.workflows.rescoring import RescoredRecording, RewardChange, rescore

__all__ = [
    "Alignment",
    "Cleared",
    "Comparison",
    "Curve",
    "Curves",
    "Diagnosis",
    "DiagnosisFinding",
    "Divergence",
    "FailureBucket",
    "Flip",
    "GateResult",
    "KlEstimates",
    "MetricComparison",
    "NotJudged",
    "ParetoPoint",
    "PreferenceStrength",
    "PromotionRules",
    "RecordedCalls",
    "Replay",
    "RescoredRecording",
    "RewardChange",
    "RuleResult",
    "SideDifference",
    "TrainingReading",
    "align",
    "branch",
    "compare",
    "curves",
    "diagnose",
    "failure_buckets",
    "gate",
    "kl_estimates",
    "pareto",
    "preference_strengths",
    "replay",
    "rescore",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Alignment": "alignment",
        "Cleared": "diagnosis",
        "Comparison": "comparison",
        "Curve": "learning_curves",
        "Curves": "learning_curves",
        "Diagnosis": "diagnosis",
        "DiagnosisFinding": "diagnosis",
        "Divergence": "workflows.replaying",
        "FailureBucket": "buckets",
        "Flip": "comparison",
        "GateResult": "gate_result",
        "KlEstimates": "model.divergence",
        "MetricComparison": "model.statistics.metric_comparison",
        "NotJudged": "diagnosis",
        "ParetoPoint": "pareto_front",
        "PreferenceStrength": "preferences",
        "PromotionRules": "rules",
        "RecordedCalls": "recorded_calls",
        "Replay": "workflows.replaying",
        "RescoredRecording": "workflows.rescoring",
        "RewardChange": "workflows.rescoring",
        "RuleResult": "gate_result",
        "SideDifference": "differences",
        "TrainingReading": "diagnosis",
        "align": "alignment",
        "branch": "workflows.branching",
        "compare": "comparing",
        "curves": "learning_curves",
        "diagnose": "study.diagnosing.detectors",
        "failure_buckets": "buckets",
        "gate": "gating",
        "kl_estimates": "model.divergence",
        "pareto": "pareto_front",
        "preference_strengths": "preferences",
        "replay": "workflows.replaying",
        "rescore": "workflows.rescoring",
    },
)
