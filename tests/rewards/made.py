"""Specs made of functions, for what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mttp.rewards.spec import RewardSpec


def component(name: str, kind: str, answer: object, **fields: Any) -> dict[str, Any]:
    """A component that answers so, or by that function."""
    use: Callable[..., Any] = answer if callable(answer) else lambda: answer
    return {"name": name, "kind": kind, "use": use, **fields}


def spec(*components: object, combine: Any = "weighted_sum", **fields: Any) -> RewardSpec:
    """A spec of components."""
    return RewardSpec(name="made", version="1.0.0", components=components, combine=combine, **fields)


def answering(answer: object, kind: str = "rubric", **fields: Any) -> RewardSpec:
    """A spec of one component that answers so."""
    return spec(component("it", kind, answer, **fields))


def raising(error: BaseException) -> Callable[[], Any]:
    """A component that raises."""

    def grader() -> Any:
        raise error

    return grader
