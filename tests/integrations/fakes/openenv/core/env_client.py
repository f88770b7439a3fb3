"""A client that answers itself, and keeps what it sent."""

from __future__ import annotations

from typing import Any


class EnvClient:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def _send_and_receive(self, message: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(message)
        return {"data": {"reward": 1.0}}

    async def step(self, action: dict[str, Any]) -> Any:
        return await self._send_and_receive({"type": "step", "data": action})

    async def reset(self, **data: Any) -> Any:
        return await self._send_and_receive({"type": "reset", "data": data})
