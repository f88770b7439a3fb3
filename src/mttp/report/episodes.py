"""Runs and episodes as tables and documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from mttp.episodes import Episode, Run
from mttp.reading.jsonable import jsonable
from mttp.report.words import NOTHING, duration, moment, number, printed

__all__ = ["SORTS", "document", "episodes_table", "runs_table", "sorted_by"]

SORTS: dict[str, Callable[[Episode], float | None]] = {
    "start": lambda episode: episode.start_time,
    "return": lambda episode: episode.return_,
    "reward": lambda episode: episode.reward.value,
    "length": lambda episode: episode.length,
    "duration": lambda episode: episode.duration,
}
"""What episodes can be sorted by."""

_STYLES = {"completed": "green", "error": "red", "aborted": "yellow", "unfinished": "yellow"}
_ID_DIGITS = 8
_NUMBERS = ("return", "steps", "duration")
_SHRINKING = ("name", "env", "task", "revision")


def sorted_by(episodes: Sequence[Episode], key: str, *, reverse: bool = False) -> list[Episode]:
    """The episodes in that order, lowest first; those where it is not known come last."""
    of = SORTS[key]

    def place(episode: Episode) -> tuple[bool, float]:
        value = of(episode)
        if value is None or not math.isfinite(value):
            return True, 0
        return False, -value if reverse else value

    return sorted(episodes, key=place)


def document(episode: Episode) -> dict[str, Any]:
    """An episode as an object of plain data, without its steps."""
    found: dict[str, Any] = jsonable(episode)
    del found["steps"]
    return found | {"duration": episode.duration, "scores": jsonable(episode.scores)}


def runs_table(runs: Sequence[Run], *, limit: int | None) -> Table:
    """One row per run."""
    rows = [
        {
            "run": printed(run.id),
            "name": printed(run.name or NOTHING, shrinks=True),
            "kind": printed(run.kind),
            "status": _status(run.status or "unfinished"),
            "started": printed(moment(run.start_time)),
            "duration": printed(duration(_seconds(run))),
            "seed": printed(NOTHING if run.seed is None else str(run.seed)),
            "revision": printed(_revision(run), shrinks=True),
        }
        for run in runs[:limit]
    ]
    return _table(rows, left_out=len(runs) - len(rows), optional={"kind": "train"})


def _seconds(run: Run) -> float | None:
    return None if run.end_time is None or run.start_time is None else (run.end_time - run.start_time) / 1e9


def _revision(run: Run) -> str:
    return NOTHING if run.revision is None else run.revision[:10] + (" dirty" if run.dirty else "")


def episodes_table(episodes: Sequence[Episode], *, limit: int | None) -> Table:
    """One row per episode; ids are as short as they can be and still be told apart, times likewise."""
    shown = episodes[:limit]
    digits = _digits([episode.trace_id for episode in episodes])
    rows = [
        {
            "episode": printed(episode.trace_id[:digits]),
            "started": printed(started),
            "env": printed(episode.env or NOTHING, shrinks=True),
            "task": printed(episode.task or NOTHING, shrinks=True),
            "status": _status(episode.status),
            "outcome": printed(episode.outcome),
            "return": printed(number(episode.return_)),
            "steps": printed(number(episode.length)),
            "duration": printed(duration(episode.duration)),
        }
        for episode, started in zip(shown, _moments(shown), strict=True)
    ]
    return _table(rows, left_out=len(episodes) - len(rows), optional={"task": NOTHING, "outcome": "unknown"})


def _moments(episodes: Sequence[Episode]) -> list[str]:
    """When each began: the time of day where all began on one day."""
    moments = [moment(episode.start_time) for episode in episodes]
    days = {text.partition(" ")[0] for text in moments}
    return [text.partition(" ")[2] for text in moments] if len(days) == 1 and NOTHING not in days else moments


def _digits(ids: Sequence[str]) -> int:
    different = set(ids)
    digits = _ID_DIGITS
    while digits < 32 and len({id_[:digits] for id_ in different}) < len(different):
        digits += 1
    return digits


def _table(rows: Sequence[Mapping[str, Text]], *, left_out: int, optional: Mapping[str, str]) -> Table:
    """The rows; a column that says the same as if it weren't there, in every row, isn't there."""
    caption = Text(f"… and {left_out:,} more; --limit 0 shows all") if left_out else None
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    names = [
        name
        for name in (rows[0] if rows else ())
        if name not in optional or any(row[name].plain != optional[name] for row in rows)
    ]
    for name in names:
        justify: JustifyMethod = "right" if name in _NUMBERS else "left"
        table.add_column(printed(name, shrinks=True), justify=justify, no_wrap=name not in _SHRINKING)
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table


def _status(status: str) -> Text:
    return printed(status, style=_STYLES.get(status, ""))
