"""Scorings as data of a page: the reward, its components, and what the graders say."""

from __future__ import annotations

from typing import Any

from mttp.model.scorings import Grade, Reward
from mttp.reading.jsonable import jsonable

__all__ = ["scoring"]


def scoring(reward: Reward) -> dict[str, Any]:
    """A scoring with its components."""
    spec = reward.spec
    graded = {grade.name for grade in reward.grades}
    parts = [_grade(grade) for one in reward.grades for grade in (one, *one.parts)]
    parts += [
        _component(name, reward.components.get(name), reward.component_statuses.get(name, "ok"), reward)
        for name in {**reward.components, **reward.component_statuses}
        if name not in graded
    ]
    return {
        "grader": reward.grader or "",
        "spec": "" if spec is None else " ".join(filter(None, (spec.name, spec.version))),
        "value": jsonable(reward.value),
        "status": reward.status,
        "explanation": _explanation(reward),
        "error": _error(reward),
        "components": parts,
    }


def _explanation(reward: Reward) -> str:
    """The explanation, with what else decided: verdict, label, failed checks, clipping."""
    parts = [reward.verdict, reward.label, reward.explanation]
    parts += [f"failed checks: {', '.join(reward.failed_checks)}"] if reward.failed_checks else []
    parts += ["clipped to its range"] if reward.clipped else []
    parts += ["the reward differs from the weighted sum of its components"] if reward.mismatch else []
    return "; ".join(filter(None, parts))


def _error(value: Reward | Grade) -> str:
    raw = f" ({value.raw})" if isinstance(value, Reward) and value.raw else ""
    return ": ".join(filter(None, (value.error_type, value.error))) + raw


def _grade(grade: Grade) -> dict[str, Any]:
    parts = [grade.verdict, grade.label, grade.explanation]
    parts += ["clipped to its range"] if grade.clipped else []
    parts += ["late"] if grade.late else []
    return {
        "name": grade.name,
        "kind": grade.kind,
        "value": jsonable(grade.value),
        "status": grade.status,
        "weight": jsonable(grade.weight),
        "contribution": jsonable(grade.contribution),
        "explanation": "; ".join(filter(None, parts)),
        "error": _error(grade),
    }


def _component(name: str, value: float | None, status: str, reward: Reward) -> dict[str, Any]:
    weight = reward.weights.get(name)
    return {
        "name": name,
        "kind": "",
        "value": jsonable(value),
        "status": status,
        "weight": jsonable(weight),
        "contribution": None if value is None or weight is None else jsonable(value * weight),
        "explanation": "",
        "error": "",
    }
