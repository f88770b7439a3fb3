"""Recordings as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mttp.model.episodes import Episode

__all__ = ["html_table", "table"]

MAX_ROWS = 50
"""Largest number of episodes in the table."""
_COLUMNS = ("episode", "env", "task", "status", "outcome", "return", "reward status", "steps", "seconds")


def table(title: str, episodes: Sequence[Episode]) -> str:
    """An HTML table of the first episodes; `title` is plain text."""
    shown = episodes[:MAX_ROWS]
    more = f"<p>{len(shown)} of {len(episodes)} episodes are shown.</p>" if len(shown) < len(episodes) else ""
    return html_table(title, _COLUMNS, map(_cells, shown), more=more)


def html_table(
    title: str, columns: Iterable[object], rows: Iterable[Iterable[object]], *, more: str = ""
) -> str:
    """An HTML table of plain values; `more` is HTML that follows it."""
    body = "".join(_row("td", row) for row in rows)
    return (
        f"<div><p>{escape(title)}</p>"
        f"<table><thead>{_row('th', columns)}</thead><tbody>{body}</tbody></table>{more}</div>"
    )


def _row(tag: str, cells: Iterable[object]) -> str:
    written = "".join(f"<{tag}>{escape(_text(cell))}</{tag}>" for cell in cells)
    return f"<tr>{written}</tr>"


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


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
