"""Episodes as rows: the columns of the episode browser, its cells, and its ready-made views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mttp.model.counting import COMPLETED
from mttp.reading.jsonable import jsonable
from mttp.viewing.episode_table import EpisodeTable, Map

__all__ = ["ColumnKind", "EpisodeColumn", "cells", "columns", "from_start", "views"]

ColumnKind: TypeAlias = Literal["text", "number", "time", "seconds", "state", "episode"]

_MOST_OWN = 12
"""Largest number of columns of components, of metrics, and of metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeColumn:
    """A column of the episode browser."""

    key: str
    """The name of a column of the table, or a map and a key, such as `components.correct`."""
    label: str
    kind: ColumnKind
    help: str = ""
    map: Map | None = None
    name: str = ""
    """The key in the map."""

    def to_dict(self) -> dict[str, str]:
        """The column as data of the page."""
        return {"key": self.key, "label": self.label, "kind": self.kind, "help": self.help}


def _fixed(key: str, kind: ColumnKind, label: str = "", help: str = "") -> EpisodeColumn:
    return EpisodeColumn(key=key, label=label or key.replace("_", " "), kind=kind, help=help)


_ALWAYS = ("episode", "start", "status", "return", "length")
_FIRST = (
    _fixed("episode", "episode"),
    _fixed("start", "time", "started"),
    _fixed("env", "text", "environment"),
    _fixed("task", "text"),
    _fixed("outcome", "state"),
    _fixed("status", "state"),
    _fixed("return", "number", help="sum of step rewards, or the stated total"),
    _fixed("reward", "number", help="value of the reward of the whole episode"),
)
_LAST = (
    _fixed("reward_status", "state"),
    _fixed("advantage", "number"),
    _fixed("length", "number", "steps"),
    _fixed("tokens", "number", help="prompt and completion tokens"),
    _fixed("duration", "seconds", "seconds"),
    _fixed("latency", "seconds", help="mean seconds of its model calls"),
    _fixed("cost", "number", help="US dollars"),
    _fixed("surprise", "number", help="mean negative log probability of its sampled tokens, in nats"),
    _fixed("failed_checks", "text"),
    _fixed("stop_reason", "text"),
    _fixed("split", "text"),
    _fixed("group", "text"),
    _fixed("seed", "text"),
    _fixed("policy_version", "text"),
    _fixed("run", "text"),
)


def columns(table: EpisodeTable) -> list[EpisodeColumn]:
    """The columns with a value in any of the episodes, and those that are always shown."""
    found = [*_FIRST, *_own("components", table), *_LAST, *_own("metrics", table), *_own("metadata", table)]
    idle = set()
    if {*table.counts("outcome")} <= {"unknown"}:
        idle.add("outcome")
    if {*table.counts("reward_status")} <= {"missing"}:
        idle.add("reward_status")  # the rewards are those of the steps
    if len(table.counts("run")) < 2:
        idle.add("run")
    return [
        one
        for one in found
        if one.key in _ALWAYS or (one.key not in idle and (one.map or table.has(one.key)))
    ]


def _own(map: Map, table: EpisodeTable) -> list[EpisodeColumn]:
    """A column for each of the first keys."""
    kind: ColumnKind = "text" if map == "metadata" else "number"
    return [
        EpisodeColumn(key=f"{map}.{name}", label=name, kind=kind, help=f"{map}.{name}", map=map, name=name)
        for name in table.keys(map)[:_MOST_OWN]
    ]


def cells(table: EpisodeTable, shown: Sequence[EpisodeColumn]) -> list[list[Any]]:
    """The rows of a table as data of the page."""
    listed = [_cells(table, one) for one in shown]
    return [list(row) for row in zip(*listed, strict=True)]


def _cells(table: EpisodeTable, column: EpisodeColumn) -> list[Any]:
    if column.map is not None:
        return [jsonable(value) for value in table.values_of(column.map, column.name)]
    values = table.values(column.key)
    return [from_start(value) if column.key == "start" else jsonable(value) for value in values]


def from_start(nanoseconds: int) -> int | None:
    """Milliseconds since the Unix epoch; None for an unknown start."""
    return nanoseconds // 1_000_000 or None


def views(table: EpisodeTable, shown: Sequence[EpisodeColumn]) -> list[dict[str, Any]]:
    """The ready-made choices of episodes: those where reward and outcome disagree first."""
    keys = {column.key for column in shown}
    score = "reward" if "reward" in keys else "return"
    outcomes, statuses = table.counts("outcome"), table.counts("status")
    ended = [("status", "=", COMPLETED)] if {*statuses} - {COMPLETED} else []
    if {*table.counts("reward_status")} - {"ok", "missing"} and "reward_status" in keys:
        ended.append(("reward_status", "~", "^(ok|missing)$"))
    found = [_view("All", "every episode, the last one first", "start", descending=True)]
    if "failure" in outcomes:
        help, filters = "failed episodes, the highest reward first", [("outcome", "=", "failure"), *ended]
        found.append(_view("High reward, failed", help, score, filters, descending=True))
    if "success" in outcomes:
        help, filters = "successful episodes, the lowest reward first", [("outcome", "=", "success"), *ended]
        found.append(_view("Low reward, succeeded", help, score, filters))
    found.append(_view("Worst", "the lowest reward first", score, ended))
    found.append(_view("Best", "the highest reward first", score, ended, descending=True))
    if {*statuses} - {COMPLETED}:
        help, filters = "episodes that did not complete", [("status", "!=", COMPLETED)]
        found.append(_view("Errors", help, "start", filters, descending=True))
    if "reward_status" in keys:
        help, filters = "episodes without a valid reward", [("reward_status", "!=", "ok")]
        found.append(_view("Not scored", help, "start", filters, descending=True))
    found.append(_view("Longest", "the most steps first", "length", descending=True))
    if "surprise" in keys:
        found.append(_view("Most surprising", "the least likely tokens first", "surprise", descending=True))
    if "advantage" in keys:
        found.append(_view("Lowest advantage", "the worst of their groups first", "advantage"))
    return found


def _view(
    name: str,
    help: str,
    sort: str,
    filters: Sequence[tuple[str, str, str]] = (),
    *,
    descending: bool = False,
) -> dict[str, Any]:
    names = ("column", "operator", "value")
    conditions = [dict(zip(names, one, strict=True)) for one in filters]
    return {"name": name, "help": help, "filters": conditions, "sort": sort, "descending": descending}
