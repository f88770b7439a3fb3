"""Recordings as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from mttp.model.chat import text_of
from mttp.model.episodes import Episode
from mttp.model.notebook import html_table

__all__ = ["table"]

MAX_ROWS = 50
"""Largest number of episodes in the table."""
_END = 60
"""Number of characters of prompt and completion that are shown."""
_COLUMNS = (
    *("episode", "env", "task", "status", "outcome", "return", "reward status", "steps", "seconds"),
    *("prompt", "completion"),
)


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
        _end(episode.steps[0].observation) if episode.steps else "",
        _end(episode.steps[-1].action) if episode.steps else "",
    )


def _end(content: object) -> str:
    """Return the end of a text or chat on one line; nothing of anything else."""
    return " ".join((text_of(content) or "").split())[-_END:]
