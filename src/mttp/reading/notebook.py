"""Recordings as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from mttp.model.episodes import Episode
from mttp.model.notebook import html_table

__all__ = ["table"]

MAX_ROWS = 50
"""Largest number of episodes in the table."""
_COLUMNS = ("episode", "env", "task", "status", "outcome", "return", "reward status", "steps", "seconds")


def table(title: str, episodes: Sequence[Episode]) -> str:
    """An HTML table of the first episodes; `title` is plain text."""
    listed = episodes[:MAX_ROWS]
    more = f"{len(listed)} of {len(episodes)} episodes are shown." if len(listed) < len(episodes) else ""
    return html_table(title, _COLUMNS, map(_cells, listed), more=more)


def _cells(episode: Episode) -> tuple[object, ...]:
    return (
        episode.trace_id[:8],
        episode.env,
        episode.task,
        episode.status,
        episode.outcome,
        episode.return_,
        episode.reward.status,
        episode.step_count,
        episode.duration,
    )
