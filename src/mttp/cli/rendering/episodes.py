"""Runs and episodes as tables and documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from mttp.model.episodes import Episode, Run
from mttp.pages.listing import Listing
from mttp.pages.words import NOTHING, duration, moment, number, printed
from mttp.reading.jsonable import jsonable

__all__ = ["SORTS", "document", "episodes_table", "runs_table", "sorted_by"]

SORTS: dict[str, Callable[[Episode], float | None]] = {
    "start": lambda episode: episode.start_time,
    "return": lambda episode: episode.return_,
    "reward": lambda episode: episode.reward.value,
    "length": lambda episode: episode.length,
    "duration": lambda episode: episode.duration,
}
"""Sort keys of episodes, by name."""

_STYLES = {"completed": "green", "error": "red", "aborted": "yellow", "unfinished": "yellow"}
_ID_DIGITS = 8
_NUMBERS = ("return", "steps", "duration")


def sorted_by(episodes: Sequence[Episode], key: str, *, reverse: bool = False) -> list[Episode]:
    """Return the episodes sorted by a key of `SORTS`; episodes without a value come last."""
    of = SORTS[key]

    def place(episode: Episode) -> tuple[bool, float]:
        value = of(episode)
        if value is None or not math.isfinite(value):
            return True, 0
        return False, -value if reverse else value

    return sorted(episodes, key=place)


def document(episode: Episode) -> dict[str, Any]:
    """Return an episode as an object of plain data, without its steps."""
    data: dict[str, Any] = jsonable(episode)
    del data["steps"]
    return data | {"duration": episode.duration, "scores": jsonable(episode.scores)}


def runs_table(runs: Sequence[Run], *, limit: int | None) -> Listing:
    """Return a table with one row per run."""
    rows = [
        {
            "run": printed(run.id),
            "name": printed(run.name or NOTHING),
            "kind": printed(run.kind),
            "status": _status(run.status or "unfinished"),
            "started": printed(moment(run.start_time)),
            "duration": printed(duration(_seconds(run))),
            "seed": printed(NOTHING if run.seed is None else str(run.seed)),
            "revision": printed(_revision(run)),
        }
        for run in runs[:limit]
    ]
    return Listing(
        rows=rows,
        important=("run", "name", "status", "started", "duration", "kind", "seed", "revision"),
        right=_NUMBERS,
        nothing={"kind": "train"},
        notes=_left_out(len(runs) - len(rows)),
    )


def _seconds(run: Run) -> float | None:
    return None if run.end_time is None or run.start_time is None else (run.end_time - run.start_time) / 1e9


def _revision(run: Run) -> str:
    return NOTHING if run.revision is None else run.revision[:10] + (" dirty" if run.dirty else "")


def episodes_table(
    episodes: Sequence[Episode], *, limit: int | None, texts: Mapping[str, Mapping[str, str]] = {}
) -> Listing:
    """
    Return a table with one row per episode; ids are prefixes that are unique among the episodes.

    `texts` has the ends of prompt and completion by trace id.
    """
    listed = episodes[:limit]
    digits = _digits([episode.trace_id for episode in episodes])
    rows = [
        {
            "episode": printed(episode.trace_id[:digits]),
            "started": printed(started),
            "env": printed(episode.env or NOTHING),
            "task": printed(episode.task or NOTHING),
            "status": _status(episode.status),
            "outcome": printed(episode.outcome),
            "return": printed(number(episode.return_)),
            "steps": printed(number(episode.length)),
            "duration": printed(duration(episode.duration)),
            **{
                name: printed(texts.get(episode.trace_id, {}).get(name) or NOTHING)
                for name in ("prompt", "completion")
            },
        }
        for episode, started in zip(listed, _moments(listed), strict=True)
    ]
    return Listing(
        rows=rows,
        important=("episode", "task", "return", "status", "outcome", "steps", "env", "prompt", "completion"),
        right=_NUMBERS,
        spare=("duration", "started"),
        nothing={"outcome": "unknown"},
        notes=_left_out(len(episodes) - len(rows)),
    )


def _moments(episodes: Sequence[Episode]) -> list[str]:
    """Return the start of each episode: the time of day if all started on one day, else date and time."""
    moments = [moment(episode.start_time) for episode in episodes]
    days = {text.partition(" ")[0] for text in moments}
    return [text.partition(" ")[2] for text in moments] if len(days) == 1 and NOTHING not in days else moments


def _digits(ids: Sequence[str]) -> int:
    """Return the number of digits in which the ids differ."""
    distinct = set(ids)
    digits = _ID_DIGITS
    while digits < 32 and len({id_[:digits] for id_ in distinct}) < len(distinct):
        digits += 1
    return digits


def _left_out(number: int) -> list[str]:
    return [f"… and {number:,} more; --limit 0 shows all"] if number else []


def _status(status: str) -> Text:
    return printed(status, style=_STYLES.get(status, ""))
