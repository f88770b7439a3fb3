"""The figures of many episodes as an Arrow table, from which overviews are computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from mttp.errors import MissingExtra
from mttp.model.counting import LEFT_OUT, Reason, counting, is_counted, is_reward_counted, training_runs
from mttp.model.figures import EpisodeFigures
from mttp.reading.counted import counted_figures
from mttp.reading.recording import Recording
from mttp.reading.sources import Source
from mttp.tables import Database
from mttp.tables.figures import FIGURES, figures_of, figures_of_values

if TYPE_CHECKING:
    import pyarrow as pa

    from mttp.model.episodes import Run

__all__ = ["EpisodeTable", "Floats", "Map", "columns_of", "known", "mean"]

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Map: TypeAlias = Literal["components", "metrics", "metadata"]

_TEXTS = (
    "episode",
    "run",
    "env",
    "task",
    "seed",
    "split",
    "group",
    "policy_version",
    "status",
    "outcome",
    "stop_reason",
    "reward_status",
    "failed_checks",
)
_NUMBERS = ("return", "reward", "success", "tokens", "duration", "latency", "cost")
_COUNTED = ("outcome", "success", "length", "tokens", "duration", "latency", "cost", "components", "metrics")
"""The columns that are missing where an episode did not end."""
_FIELDS = {"episode": "trace_id", "return": "return_"}


class EpisodeTable:
    """
    One row for each episode, in order of start.

    Missing numbers are NaN, missing texts None.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @classmethod
    def of(cls, episodes: Iterable[EpisodeFigures]) -> EpisodeTable:
        """The table of these episodes."""
        return cls(columns_of(episodes))

    @classmethod
    def of_counted(cls, source: Source | Recording) -> EpisodeTable:
        """The table of the episodes of a source that count or are missing, see `counted`."""
        if isinstance(source, Recording):
            updated = {update.run_id for update in source.updates}
            return cls.of(counted_figures(figures_of_values(source), source.runs, updated)[0])
        left_out = ", ".join(f"'{reason}'" for reason in LEFT_OUT)
        with Database(source) as database:
            rows = database.sql(f"{FIGURES} FROM episodes WHERE counts_reason NOT IN ({left_out})")
        return cls.of(figures.as_counted() for figures in figures_of(rows.arrow()))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, name: str) -> Floats:
        """A column of numbers, shape [episodes]; NaN where missing or not finite."""
        return _floats(self._table.column(name))

    def numbers_of(self, map: Map, key: str) -> Floats:
        """The numbers under a key of `components` or `metrics`, shape [episodes]."""
        import pyarrow.compute as pc

        return _floats(pc.map_lookup(self._table.column(map), key, "first"))

    def keys(self, map: Map) -> list[str]:
        """The keys of a map column, sorted."""
        import pyarrow.compute as pc

        found: set[str] = set()
        for chunk in self._table.column(map).chunks:
            found.update(pc.unique(chunk.keys).to_pylist())
        return sorted(found)

    def labels(self, name: str) -> tuple[np.ndarray[Any, Any], list[str]]:
        """Codes, shape [episodes], and the distinct texts that they stand for; -1 where missing."""
        import pyarrow.compute as pc

        column = self._table.column(name).combine_chunks()
        encoded = pc.fill_null(column.dictionary_encode().indices, -1) if len(self) else None
        words = column.dictionary_encode().dictionary.to_pylist() if len(self) else []
        codes = np.empty(0, np.int64) if encoded is None else encoded.to_numpy(zero_copy_only=False)
        return codes.astype(np.int64), words

    def counts(self, name: str) -> dict[str, int]:
        """Number of episodes by text, the most frequent first."""
        codes, words = self.labels(name)
        counted = np.bincount(codes[codes >= 0], minlength=len(words))
        return {words[code]: int(counted[code]) for code in np.argsort(-counted, kind="stable")}

    def invalid_rewards(self) -> Floats:
        """
        1 for episodes without a valid reward, 0 for the others, shape [episodes].

        A return from steps needs no reward, and an episode that did not end has none.
        """
        codes, words = self.labels("reward_status")
        is_valid = np.isin(codes, [place for place, word in enumerate(words) if word == "ok"])
        is_missing = np.isin(codes, [place for place, word in enumerate(words) if word == "missing"])
        is_valid |= is_missing & ~np.isnan(self.numbers("return"))
        codes, words = self.labels("status")
        ended = [place for place, word in enumerate(words) if is_counted(word)]
        return (~is_valid & np.isin(codes, ended)).astype(float)

    def reasons(self, runs: Iterable[Run], with_updates: Iterable[str]) -> list[Reason]:
        """Why each episode counts or not; `with_updates` are the ids of the runs with updates."""
        names = ("run", "status", "stop_reason", "task", "split")
        rows = [*zip(*(self.values(name) for name in names), strict=True)]
        episodes = {(run, task, split) for run, _, _, task, split in rows}
        training = training_runs(runs, episodes, with_updates=with_updates)
        return [
            counting(status=status, stop_reason=stop, is_training=run in training, task=task, split=split)
            for run, status, stop, task, split in rows
        ]

    def counted(self, reasons: Sequence[Reason]) -> EpisodeTable:
        """The table of the episodes that count or are missing, without the numbers that do not count."""
        import pyarrow as pa

        rows = np.array([row for row, reason in enumerate(reasons) if reason not in LEFT_OUT], np.int64)
        table = self._table.take(pa.array(rows))
        ends = np.array([reasons[row] == "counted" for row in rows], bool)
        reward, return_ = (_floats(table.column(name)) for name in ("reward", "return"))
        statuses = table.column("reward_status").to_pylist()
        is_rewarded = ends & np.array([is_reward_counted(status or "") for status in statuses], bool)
        masks = dict.fromkeys(_COUNTED, ends)
        masks |= {"reward": is_rewarded, "return": ends & (is_rewarded | (reward != return_))}
        for name, mask in masks.items():
            if not mask.all():
                place = table.column_names.index(name)
                kept = pa.array(np.arange(len(rows)), mask=~mask)  # a row that is null gives null
                table = table.set_column(place, name, table.column(name).take(kept))
        return EpisodeTable(table)

    def slices(self) -> dict[str, np.ndarray[Any, Any]]:
        """Row numbers by the name of a slice."""
        import pyarrow.compute as pc

        column = self._table.column("slices").combine_chunks()
        rows = pc.list_parent_indices(column).to_numpy()
        names = pc.list_flatten(column).to_pylist()
        found: dict[str, list[int]] = {}
        for row, name in zip(rows.tolist(), names, strict=True):
            found.setdefault(name, []).append(row)
        return {name: np.array(places) for name, places in found.items()}

    def has(self, name: str) -> bool:
        """Whether there is such a column, with any value."""
        if name not in self._table.column_names:
            return False
        column = self._table.column(name)
        return bool(column.null_count < len(column))

    def values(self, name: str) -> list[Any]:
        """A column as plain values."""
        return list(self._table.column(name).to_pylist())

    def values_of(self, map: Map, key: str) -> list[Any]:
        """The values under a key of a map as plain values."""
        import pyarrow.compute as pc

        return list(pc.map_lookup(self._table.column(map), key, "first").to_pylist())

    def with_numbers(self, **columns: Sequence[float | None]) -> EpisodeTable:
        """The table with more columns of numbers."""
        import pyarrow as pa

        table = self._table
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values, pa.float64()))
        return EpisodeTable(table)

    def episode(self, row: int) -> str:
        """The trace id of a row."""
        return str(self._table.column("episode")[row].as_py())

    def take(self, rows: np.ndarray[Any, Any]) -> EpisodeTable:
        """The table of some rows."""
        return EpisodeTable(self._table.take(rows))


def known(values: Floats) -> Floats:
    """The values that are not NaN."""
    return values[~np.isnan(values)]


def mean(values: Floats) -> float | None:
    """The mean of the values that are not NaN; None without any."""
    found = known(values)
    return float(found.mean()) if len(found) else None


def _floats(column: Any) -> Floats:
    found: Floats = column.to_numpy(zero_copy_only=False).astype(float) if len(column) else np.empty(0)
    return np.where(np.isfinite(found), found, np.nan)


def columns_of(episodes: Iterable[EpisodeFigures]) -> pa.Table:
    """The figures as an Arrow table with a fixed schema."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(package="pyarrow", extra="study", purpose="looking at recordings") from error
    listed = [*episodes]
    texts = {name: pa.array(_texts(listed, name), pa.string()) for name in _TEXTS}
    numbers = {
        name: pa.array([_number(getattr(one, _FIELDS.get(name, name))) for one in listed], pa.float64())
        for name in _NUMBERS
    }
    maps = {
        name: pa.array(
            [[*getattr(one, name).items()] for one in listed],
            pa.map_(pa.string(), pa.string() if name == "metadata" else pa.float64()),
        )
        for name in ("components", "metrics", "metadata")
    }
    return pa.table(
        {
            "start": pa.array([one.start_time for one in listed], pa.int64()),
            "length": pa.array([one.length for one in listed], pa.int64()),
            "slices": pa.array([[*one.slices] for one in listed], pa.list_(pa.string())),
            **texts,
            **numbers,
            **maps,
        }
    )


def _texts(episodes: Sequence[EpisodeFigures], name: str) -> list[str | None]:
    if name == "failed_checks":
        return [", ".join(one.failed_checks) or None for one in episodes]
    return [getattr(one, _FIELDS.get(name, name)) or None for one in episodes]


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
