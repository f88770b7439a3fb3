"""Scorings as data of a page: the reward, its components, and what the graders say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mttp.model.scorings import Grade, Reward
from mttp.reading.jsonable import jsonable
from mttp.viewing.call_block import call_block

__all__ = ["scoring"]


def scoring(reward: Reward) -> dict[str, Any]:
    """A scoring with its components, and the calls of its graders."""
    spec = reward.spec
    return {
        "grader": reward.grader or "",
        "spec": "" if spec is None else " ".join(filter(None, (spec.name, spec.version))),
        "value": jsonable(reward.value),
        "status": reward.status,
        "explanation": _explanation(reward),
        "error": _error(reward),
        "components": [*_components(reward.all_grades, 0)],
        "calls": [call_block(one) for one in reward.calls],
    }


def _components(grades: Sequence[Grade], depth: int) -> Iterator[dict[str, Any]]:
    """Each grade, followed by its parts in its own scale."""
    for grade in grades:
        yield _grade(grade, depth)
        yield from _components(grade.scaled_parts, depth + 1)


def _explanation(reward: Reward) -> str:
    """The explanation, with what else decided: verdict, label, failed checks, clipping."""
    parts = [reward.verdict, reward.label, reward.explanation]
    parts += [f"failed checks: {', '.join(reward.failed_checks)}"] if reward.failed_checks else []
    parts += ["clipped to its range"] if reward.clipped else []
    parts += ["the reward differs from the weighted sum of its components"] if reward.mismatch else []
    return "; ".join(filter(None, parts))


def _error(value: Reward | Grade) -> str:
    raw = f" ({value.raw})" if isinstance(value, Reward) and value.raw else ""
    kind = None if value.error_type and value.error_type in (value.error or "") else value.error_type
    return ": ".join(filter(None, (kind, value.error))) + raw


def _grade(grade: Grade, depth: int) -> dict[str, Any]:
    parts = [grade.verdict, grade.label, grade.explanation]
    parts += ["clipped to its range"] if grade.clipped else []
    parts += ["late"] if grade.late else []
    return {
        "name": grade.name,
        "depth": depth,
        "kind": grade.kind,
        "value": jsonable(grade.value),
        "status": grade.status,
        "weight": jsonable(grade.weight),
        "contribution": jsonable(grade.contribution),
        "explanation": "; ".join(filter(None, parts)),
        "error": _error(grade),
        "calls": [call_block(one) for one in grade.calls],
    }
