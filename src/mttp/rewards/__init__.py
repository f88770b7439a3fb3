"""
Reward specs: named, versioned and tested definitions of rewards.

mttp has no reward functions of its own; a spec names, versions, checks, composes and tests yours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mttp.model.exports import exports

if TYPE_CHECKING:
    from mttp.model.results import RewardResult
    from mttp.rewards.component_results import Score
    from mttp.rewards.decorators import check, judge, penalty, rubric, shaping, verifier
    from mttp.rewards.spec import RewardSpec
    from mttp.workflows.evaluating import OpenEvaluation

__all__ = [
    "OpenEvaluation",
    "RewardResult",
    "RewardSpec",
    "Score",
    "check",
    "judge",
    "penalty",
    "rubric",
    "shaping",
    "verifier",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "OpenEvaluation": "workflows.evaluating",
        "RewardResult": "model.results",
        "RewardSpec": "spec",
        "Score": "component_results",
        "check": "decorators",
        "judge": "decorators",
        "penalty": "decorators",
        "rubric": "decorators",
        "shaping": "decorators",
        "verifier": "decorators",
    },
)
