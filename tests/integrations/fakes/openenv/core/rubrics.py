"""Rubrics with hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Rubric:
    def __init__(self, forward: Any = None, **children: Rubric) -> None:
        self._forward_hooks: list[Any] = []
        self._forward_pre_hooks: list[Any] = []
        self._forward = forward
        self._children = children

    def __call__(self, action: Any, observation: Any) -> Any:
        for hook in self._forward_pre_hooks:
            hook(self, action, observation)
        result = self.forward(action, observation)
        for hook in self._forward_hooks:
            hook(self, action, observation, result)
        return result

    def forward(self, action: Any, observation: Any) -> Any:
        if self._forward is None:
            return sum(one(action, observation) for one in self._children.values())
        return self._forward

    def register_forward_hook(self, hook: Any) -> None:
        self._forward_hooks.append(hook)

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        yield from self._children.items()

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        for name, one in self._children.items():
            yield f"{prefix}{name}", one
            yield from one.named_rubrics(f"{prefix}{name}.")


class LLMJudge(Rubric):
    pass


class First(Rubric):
    """Calls the first rubric only."""

    def forward(self, action: Any, observation: Any) -> Any:
        return next(iter(self._children.values()))(action, observation)
