"""A reward as a block: its value, its components, and what the graders say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mttp.model.scorings import Grade, Reward
from mttp.pages.blocks import Block
from mttp.pages.messages import call_block
from mttp.reading.jsonable import jsonable

__all__ = ["reward_block"]


def reward_block(reward: Reward) -> Block:
    """Return a reward with its components, each followed by its parts, and the calls of its graders."""
    spec = reward.spec
    return {
        "type": "reward",
        "grader": reward.grader or "",
        "spec": "" if spec is None else " ".join(filter(None, (spec.name, spec.version))),
        "value": jsonable(reward.value),
        "status": reward.status,
        "explanation": _explanation(reward),
        "error": _error(reward),
        "components": [*_components(reward.all_grades, 0)],
        "blocks": [call_block(call) for call in reward.calls],
    }


def _components(grades: Sequence[Grade], depth: int) -> Iterator[dict[str, Any]]:
    """Yield each grade, followed by its parts in its own scale."""
    for grade in grades:
        yield _grade(grade, depth)
        yield from _components(grade.scaled_parts, depth + 1)


def _explanation(reward: Reward) -> str:
    """Return the explanation, with what else decided: verdict, label, failed checks, clipping."""
    words = [reward.verdict, reward.label, reward.explanation]
    words += [f"failed checks: {', '.join(reward.failed_checks)}"] if reward.failed_checks else []
    words += ["clipped to its range"] if reward.clipped else []
    words += ["the reward differs from the weighted sum of its components"] if reward.mismatch else []
    return "; ".join(filter(None, words))


def _error(value: Reward | Grade) -> str:
    raw = f" ({value.raw})" if isinstance(value, Reward) and value.raw else ""
    kind = None if value.error_type and value.error_type in (value.error or "") else value.error_type
    return ": ".join(filter(None, (kind, value.error))) + raw


def _grade(grade: Grade, depth: int) -> dict[str, Any]:
    words = [grade.verdict, grade.label, grade.explanation]
    words += ["clipped to its range"] if grade.clipped else []
    words += ["late"] if grade.late else []
    return {
        "name": grade.name,
        "depth": depth,
        "kind": grade.kind,
        "value": jsonable(grade.value),
        "status": grade.status,
        "weight": jsonable(grade.weight),
        "contribution": jsonable(grade.contribution),
        "explanation": "; ".join(filter(None, words)),
        "error": _error(grade),
        "blocks": [call_block(call) for call in grade.calls],
    }
