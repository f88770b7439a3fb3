"""The page of one episode as data of the front end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mttp.model.episodes import Episode, Group
from mttp.pages.episode import page, title
from mttp.pages.tokens import Pieces

__all__ = ["episode_page"]


def episode_page(
    episode: Episode,
    *,
    group: Group | None = None,
    problems: Sequence[str] = (),
    pieces: Pieces | None = None,
    source: str = "",
) -> dict[str, Any]:
    """
    Return the page of an episode, as `viewer/src/data.ts` describes it.

    `source` is the path for the command that shows the episode in a terminal.
    """
    blocks = page(episode, group=group, problems=problems, pieces=pieces)
    return {
        "trace_id": episode.trace_id,
        "title": title(episode),
        "command": f"mttp show {source} --episode {episode.trace_id[:8]}" if source else "",
        "blocks": [block for block in blocks if block is not None],
    }
