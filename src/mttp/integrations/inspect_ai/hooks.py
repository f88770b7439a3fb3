"""Hooks that Inspect loads by the entry point `mttp` of the group `inspect_ai`."""

from __future__ import annotations

from typing import Any

from inspect_ai.hooks import Hooks, hooks

from mttp.integrations.faults import guard
from mttp.integrations.inspect_ai.library import recorder

__all__ = ["EvaluationHooks"]

_LIBRARY = "inspect_ai"


@hooks(name="mttp", description="Records samples as episodes and tasks as evaluations.")
class EvaluationHooks(Hooks):  # type: ignore[misc]  # untyped
    """Passes events to the recorder."""

    def enabled(self) -> bool:
        """Return whether anything is recorded."""
        return recorder().enabled

    async def on_task_start(self, data: Any) -> None:
        """Keep the description of the task."""
        guard(_LIBRARY, recorder().task_started, data.eval_id, data.spec)

    async def on_sample_end(self, data: Any) -> None:
        """Record the sample."""
        guard(_LIBRARY, recorder().sample_ended, data.eval_id, data.sample)

    async def on_task_end(self, data: Any) -> None:
        """Record the evaluation."""
        guard(_LIBRARY, recorder().task_ended, data.eval_id, data.log)
