"""The figures of episodes, from rows of the table `episodes`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from mttp.model.episodes import Episode
from mttp.model.figures import EpisodeFigures
from mttp.otlp.streams import Progress
from mttp.reading.garbage import gc_disabled
from mttp.reading.sources import Source
from mttp.tables.arrow import numbers, scalars
from mttp.tables.database import Database
from mttp.tables.values import EpisodeSpans, trace_of

__all__ = ["FIGURES", "figures_of", "figures_of_values", "read_figures"]

_EXPRESSIONS: Final = {
    "run": "run_id",
    "return_": '"return"',
    "group": '"group"',
    "spec": "[coalesce(spec_name, ''), coalesce(spec_version, ''), coalesce(spec_sha256, '')]",
    "graders": "[[coalesce(grader.name, ''), coalesce(grader.version, '')] for grader in graders]",
    "call_count": "calls",
    "cost": "cost_usd",
    "share": "sampling_share",
    "inputs_json": "inputs",
}
"""What gives a field that is no column with the same name."""
FIGURES: Final = "SELECT " + ", ".join(
    f'{_EXPRESSIONS.get(name, name)} AS "{name}"' for name in EpisodeFigures._fields
)
"""The columns of the table `episodes` that are figures, to be followed by `FROM`."""


@gc_disabled()
def figures_of(table: Any) -> list[EpisodeFigures]:
    """Return the figures of each row of an Arrow table, which is the result of `FIGURES`."""
    columns = (_values(table.column(name).combine_chunks()) for name in EpisodeFigures._fields)
    return [*map(EpisodeFigures._make, zip(*columns, strict=True))] if len(table) else []


def _values(column: Any) -> list[Any]:
    """Return the cells: maps as dicts, lists as tuples."""
    from pyarrow import types

    if types.is_map(column.type) or types.is_list(column.type):
        places = [slice(*pair) for pair in pairwise(numbers(column.offsets).tolist())]
        if types.is_list(column.type):
            items = _values(column.values)
            return [tuple(items[place]) for place in places]
        keys, items = _values(column.keys), _values(column.items)
        return [dict(zip(keys[place], items[place], strict=True)) for place in places]
    return scalars(column)


def read_figures(source: Source, *, progress: Progress | None = None) -> list[EpisodeFigures]:
    """Return the figures of the episodes of a source, in order of start."""
    with Database(source, progress=progress) as database:
        return figures_of(database.arrow(f"{FIGURES} FROM episodes"))


def figures_of_values(episodes: Iterable[Episode]) -> list[EpisodeFigures]:
    """Return the figures of each of these episodes, in the same order."""
    values = [*episodes]
    if not values:
        return []
    rows = {row.trace_id: row for row in read_figures(EpisodeSpans(values))}
    return [
        rows[trace_of(place)]._replace(
            trace_id=value.trace_id, duration=value.duration, share=value.sampling_share
        )
        for place, value in enumerate(values)
    ]
