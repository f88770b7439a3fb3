"""Specs built from functions that return a given answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mttp.rewards.spec import RewardSpec


def component(name: str, kind: str, answer: object, **fields: Any) -> dict[str, Any]:
    """Return a component with a function, or with a constant answer."""
    use: Callable[..., Any] = answer if callable(answer) else lambda: answer
    return {"name": name, "kind": kind, "use": use, **fields}


def spec(*components: object, combine: Any = "weighted_sum", **fields: Any) -> RewardSpec:
    """Return a spec of components."""
    return RewardSpec(name="made", version="1.0.0", components=components, combine=combine, **fields)


def answering(answer: object, kind: str = "rubric", **fields: Any) -> RewardSpec:
    """Return a spec of one component with a constant answer."""
    return spec(component("it", kind, answer, **fields))


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a component that raises an error."""

    def grader() -> Any:
        raise error

    return grader
