"""Trajectories and groups of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pydantic
from openai.types.chat.chat_completion import Choice


class Failure(pydantic.BaseModel):
    """An exception of a rollout."""

    type: str
    message: str


class Trajectory(pydantic.BaseModel):
    """Messages and choices of one rollout."""

    messages_and_choices: list[Choice | dict[str, Any]] = []
    tools: list[Any] | None = None
    additional_histories: list[Any] = []
    reward: float = 0.0
    initial_policy_version: int | None = None
    final_policy_version: int | None = None
    metrics: dict[str, float | int | bool] = {}
    metadata: dict[str, Any] = {}
    logs: list[str] = []
    start_time: datetime = pydantic.Field(default_factory=datetime.now, exclude=True)

    def finish(self) -> Trajectory:
        """Set the duration."""
        self.metrics["duration"] = (datetime.now() - self.start_time).total_seconds()
        return self

    def messages(self) -> list[dict[str, Any]]:
        """Return messages without choices."""
        return [
            {"role": "assistant", "content": one.message.content} if isinstance(one, Choice) else dict(one)
            for one in self.messages_and_choices
        ]


class TrajectoryGroup(pydantic.BaseModel):
    """Trajectories of one task."""

    trajectories: list[Trajectory]
    exceptions: list[Failure] = []
    metadata: dict[str, Any] = {}

    def __new__(cls, trajectories: Iterable[Any], **_: Any) -> Any:
        """Return the group, or an awaitable of it."""
        given = list(trajectories)
        return _awaited(given) if any(hasattr(one, "__await__") for one in given) else super().__new__(cls)

    def __init__(self, trajectories: Iterable[Any], **facts: Any) -> None:
        given = list(trajectories)
        failures = [
            Failure(type=str(type(one)), message=str(one)) for one in given if isinstance(one, Exception)
        ]
        good = [one for one in given if isinstance(one, Trajectory)]
        super().__init__(trajectories=good, exceptions=failures, **facts)


async def _awaited(given: list[Any]) -> TrajectoryGroup:
    return TrajectoryGroup(await asyncio.gather(*given, return_exceptions=True))
