"""Public hooks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from inspect_ai._util.registry import REGISTRY


class Hooks:
    """The base of hooks."""


def hooks(name: str, description: str) -> Callable[[type], type]:
    """Register a class of hooks."""
    assert description

    def register(kind: type) -> type:
        REGISTRY[f"hooks:mttp/{name}"] = kind()
        return kind

    return register


async def run(eval_id: str, spec: Any, samples: list[Any], log: Any) -> None:
    """Call the enabled hooks as Inspect does for one task."""
    for hook in REGISTRY.values():
        if hook.enabled():
            await hook.on_task_start(SimpleNamespace(eval_id=eval_id, spec=spec))
            for sample in samples:
                await hook.on_sample_end(SimpleNamespace(eval_id=eval_id, sample=sample))
            await hook.on_task_end(SimpleNamespace(eval_id=eval_id, log=log))
