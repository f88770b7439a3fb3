"""Runs and episodes as tables and documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mttp.episodes import Episode, Run
from mttp.reading.jsonable import jsonable
from mttp.report.words import NOTHING, duration, moment, number

__all__ = ["SORTS", "document", "episodes_table", "runs_table", "sorted_by"]

SORTS: dict[str, Callable[[Episode], float | None]] = {
    "start": lambda episode: episode.start_time,
    "return": lambda episode: episode.return_,
    "length": lambda episode: episode.length,
    "duration": lambda episode: episode.duration,
}
"""What episodes can be sorted by."""

_STYLES = {"completed": "green", "error": "red", "aborted": "yellow", "unfinished": "yellow"}
_ID_DIGITS = 8


def sorted_by(episodes: Sequence[Episode], key: str, *, reverse: bool = False) -> list[Episode]:
    """The episodes in that order, lowest first; those where it is not known come last."""
    of = SORTS[key]
    known = [episode for episode in episodes if of(episode) is not None]
    unknown = [episode for episode in episodes if of(episode) is None]
    return sorted(known, key=lambda episode: of(episode) or 0, reverse=reverse) + unknown


def document(episode: Episode) -> dict[str, Any]:
    """An episode as an object of plain data, without its steps."""
    found: dict[str, Any] = jsonable(episode)
    del found["steps"]
    return found | {"duration": episode.duration}


def runs_table(runs: Sequence[Run], *, limit: int | None) -> Table:
    """One row per run."""
    table = _table(
        "run", "name", "kind", "status", "started", "duration", "seed", "revision", limited=(runs, limit)
    )
    for run in runs[:limit]:
        ended = None if run.end_time is None or run.start_time is None else run.end_time - run.start_time
        table.add_row(
            Text(run.id),
            Text(run.name or NOTHING),
            Text(run.kind),
            _status(run.status or "unfinished"),
            moment(run.start_time),
            duration(None if ended is None else ended / 1e9),
            Text(NOTHING if run.seed is None else str(run.seed)),
            Text(_revision(run)),
        )
    return table


def _revision(run: Run) -> str:
    return NOTHING if run.revision is None else run.revision[:10] + ("+changes" if run.dirty else "")


def episodes_table(episodes: Sequence[Episode], *, limit: int | None) -> Table:
    """One row per episode; ids are as short as they can be and still be told apart."""
    digits = _digits([episode.trace_id for episode in episodes])
    table = _table("episode", "started", "env", "task", "status", "outcome", limited=(episodes, limit))
    for name in ("return", "steps", "duration"):
        table.add_column(name, justify="right", no_wrap=True)
    for episode in episodes[:limit]:
        table.add_row(
            Text(episode.trace_id[:digits]),
            moment(episode.start_time),
            Text(episode.env or NOTHING),
            Text(episode.task or NOTHING),
            _status(episode.status),
            Text(episode.outcome),
            number(episode.return_),
            number(episode.length),
            duration(episode.duration),
        )
    return table


def _digits(ids: Sequence[str]) -> int:
    different = set(ids)
    digits = _ID_DIGITS
    while digits < 32 and len({id_[:digits] for id_ in different}) < len(different):
        digits += 1
    return digits


def _table(*names: str, limited: tuple[Sequence[object], int | None]) -> Table:
    """A table of so many rows at most; its caption says how many more there are."""
    rows, limit = limited
    more = 0 if limit is None else len(rows) - limit
    caption = Text(f"… and {more:,} more; --limit 0 shows all") if more > 0 else None
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    for name in names:
        table.add_column(name, no_wrap=name in (names[0], "started", "status"), overflow="fold")
    return table


def _status(status: str) -> Text:
    return Text(status, style=_STYLES.get(status, ""))
