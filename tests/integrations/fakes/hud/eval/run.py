"""A rollout with the functions that HUD's calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

exits: list[str] = []
"""The ids of the runs whose end was reported."""


class Trace:
    def __init__(self, steps: Sequence[Any]) -> None:
        self.steps = list(steps)
        self.trace_id = ""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        assert mode == "json"
        assert exclude_none
        return {"trace_id": self.trace_id, "steps": self.steps, "status": "completed", "stop_reason": "done"}


@contextmanager
def set_trace_context(trace_id: str, *, parent_trace_id: str | None = None) -> Iterator[None]:
    yield


async def trace_exit(run: Any) -> None:
    exits.append(run.trace.trace_id)


async def rollout(
    steps: Sequence[Any], agent: Callable[[], Awaitable[None]], *, trace_id: str, **facts: Any
) -> Any:
    with set_trace_context(trace_id, parent_trace_id=None):
        await agent()
        run = SimpleNamespace(
            trace=Trace(steps),
            grade=SimpleNamespace(is_error=False, content=None, **facts),
            slug="add-1",
            group_id="g",
            job_id="j",
            runtime="tcp://local",
        )
        run.trace.trace_id = trace_id
        await trace_exit(run)
    return run
