"""Gathering of groups and of trajectories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def gather_trajectory_groups(
    groups: Iterable[Any], *, max_exceptions: int = 0, after_each: Any = None
) -> list[Any]:
    """Await all groups, and pass each to `after_each`."""

    async def one(awaited: Any) -> Any:
        group = await awaited
        return group if after_each is None else await after_each(group)

    return [group for group in await asyncio.gather(*map(one, groups)) if group is not None]


async def gather_trajectories(trajectories: Iterable[Any], **_: Any) -> list[Any]:
    """Await all trajectories."""
    return list(await asyncio.gather(*trajectories))
