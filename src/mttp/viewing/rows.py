"""Episodes as rows: the columns of the episode browser, its cells, and its ready-made views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mttp.model.counting import COMPLETED
from mttp.tables.database import quoted
from mttp.viewing.figures import EpisodeDatabase, names

__all__ = ["ColumnKind", "EpisodeColumn", "cells", "columns", "long_texts", "views"]

ColumnKind: TypeAlias = Literal["text", "long", "number", "time", "seconds", "state", "episode"]

_END = 120
"""Number of characters of a long text that a list shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeColumn:
    """A column of the episode browser."""

    key: str
    label: str
    kind: ColumnKind
    sql: str
    """Its value as an expression over the table `episodes`."""
    help: str = ""

    @property
    def cell(self) -> str:
        """What is shown, as an expression: of a long text the end."""
        if self.kind != "long":
            return self.sql
        return (
            f"CASE WHEN length({self.sql}) > {_END} THEN '…' || right({self.sql}, {_END}) ELSE {self.sql} END"
        )

    def to_dict(self) -> dict[str, str]:
        """Return the column as data of the page."""
        return {"key": self.key, "label": self.label, "kind": self.kind, "help": self.help}


def _fixed(key: str, kind: ColumnKind, sql: str = "", label: str = "", help: str = "") -> EpisodeColumn:
    sql, label = sql or f'"{key}"', label or key.replace("_", " ")
    return EpisodeColumn(key=key, label=label, kind=kind, sql=sql, help=help)


_UPDATE = """
    coalesce(
        (SELECT max("update") FROM trained WHERE trained.trace_id = episodes.trace_id),
        (
            SELECT max("update") FROM trained
            WHERE trained.run_id = episodes.run_id AND trained."group" = episodes."group"
        )
    )
"""
_ALWAYS = ("episode", "start", "status", "return", "length")
_FIRST = (
    _fixed("episode", "episode", "trace_id"),
    _fixed("outcome", "state"),
    _fixed("return", "number", help="sum of step rewards, or the stated total"),
    _fixed("reward", "number", help="value of the reward of the whole episode"),
    _fixed("task", "text", "nullif(task, '')"),
    _fixed("prompt", "long", help="end of the first observation"),
    _fixed("completion", "long", help="end of the actions"),
    _fixed("status", "state"),
    _fixed("start", "time", "nullif(start_time // 1000000, 0)", "started"),
    _fixed("env", "text", "nullif(env, '')", "environment"),
)
_LAST = (
    _fixed("reward_status", "state"),
    _fixed("advantage", "number"),
    _fixed("length", "number", label="steps"),
    _fixed("tokens", "number", "prompt_tokens + completion_tokens", help="prompt and completion tokens"),
    _fixed("duration", "seconds", label="seconds"),
    _fixed("latency", "seconds", "call_seconds / nullif(calls, 0)", help="mean seconds of its model calls"),
    _fixed("cost", "number", "cost_usd", help="US dollars"),
    _fixed(
        "surprise",
        "number",
        "-mean_logprob",
        help="mean negative log probability of its sampled tokens, in nats",
    ),
    _fixed("failed_checks", "text", "nullif(array_to_string(failed_checks, ', '), '')"),
    _fixed("error", "text", "nullif(concat_ws(': ', error_type, error_message), '')"),
    _fixed("stop_reason", "text"),
    _fixed("split", "text"),
    _fixed("group", "text"),
    _fixed("seed", "text"),
    _fixed("policy_version", "text"),
    _fixed("update", "number", _UPDATE, help="index of the update that trained on it"),
    _fixed("run", "text", "run_id"),
)
_NEWS = {
    "outcome": "count(*) FILTER (outcome <> 'unknown')",
    "reward_status": "count(*) FILTER (reward_status <> 'missing')",
    "run": "count(DISTINCT run_id) - 1",
    "update": "(SELECT count(*) FROM trained)",
}
"""How often a column says something, if not by each of its values; without rewards, those of steps count."""


def columns(database: EpisodeDatabase) -> list[EpisodeColumn]:
    """Return the columns with a value in any of the episodes, and those that are always shown."""
    news = (
        f'{_NEWS.get(column.key, f"count({column.sql})")} AS "{column.key}"' for column in (*_FIRST, *_LAST)
    )
    (counts,) = database.rows(f"SELECT {', '.join(news)} FROM episodes")
    first, last = (
        [column for column in listed if counts[column.key] > 0 or column.key in _ALWAYS]
        for listed in (_FIRST, _LAST)
    )
    by_name = {name: _named(database, name) for name in ("components", "metrics", "metadata")}
    return [*first, *by_name["components"], *last, *by_name["metrics"], *by_name["metadata"]]


def _named(database: EpisodeDatabase, map: str) -> list[EpisodeColumn]:
    """Return a column for each of the first keys."""
    kind: ColumnKind = "text" if map == "metadata" else "number"
    return [
        _fixed(f"{map}.{name}", kind, f"{map}[{quoted(name)}]", name, f"{map}.{name}")
        for name in names(database, map)
    ]


def cells(
    database: EpisodeDatabase, shown: Sequence[EpisodeColumn], trace_ids: Sequence[str]
) -> list[list[Any]]:
    """Return the rows of episodes as data of the page, in this order; the first column has their ids."""
    return _rows(database, [column.cell for column in shown], trace_ids)


def long_texts(database: EpisodeDatabase, trace_ids: Sequence[str]) -> list[list[str]]:
    """Return prompt and completion, of which a list shows the ends, and what else was said, by episode."""
    return [
        [text or "" for text in texts]
        for _, *texts in _rows(database, ["trace_id", "prompt", "completion", "exchange"], trace_ids)
    ]


def _rows(database: EpisodeDatabase, expressions: Sequence[str], trace_ids: Sequence[str]) -> list[list[Any]]:
    named = ", ".join(f"{expression} AS c{place}" for place, expression in enumerate(expressions))
    query = f"SELECT {named} FROM episodes WHERE trace_id IN (SELECT unnest($trace_ids::VARCHAR[]))"
    rows = database.rows(query, {"trace_ids": [*trace_ids]})
    by_id = {row["c0"]: [*row.values()] for row in rows}
    return [by_id[trace_id] for trace_id in trace_ids]


def views(database: EpisodeDatabase, shown: Sequence[EpisodeColumn]) -> list[dict[str, Any]]:
    """Return the ready-made choices of episodes: those where reward and outcome disagree first."""
    keys = {column.key for column in shown}
    score = "reward" if "reward" in keys else "return"
    states = database.rows("SELECT DISTINCT outcome, status, reward_status FROM episodes")
    outcomes, statuses, reward_statuses = (
        {row[name] for row in states} for name in ("outcome", "status", "reward_status")
    )
    ended = [("status", "=", COMPLETED)] if statuses - {COMPLETED} else []
    if reward_statuses - {"ok", "missing"} and "reward_status" in keys:
        ended.append(("reward_status", "~", "^(ok|missing)$"))
    choices = [_view("All", "every episode, the last one first", "start", descending=True)]
    if "failure" in outcomes:
        help, filters = "failed episodes, the highest reward first", [("outcome", "=", "failure"), *ended]
        choices.append(_view("High reward, failed", help, score, filters, descending=True))
    if "success" in outcomes:
        help, filters = "successful episodes, the lowest reward first", [("outcome", "=", "success"), *ended]
        choices.append(_view("Low reward, succeeded", help, score, filters))
    choices.append(_view("Worst", "the lowest reward first", score, ended))
    choices.append(_view("Best", "the highest reward first", score, ended, descending=True))
    if statuses - {COMPLETED}:
        help, filters = "episodes that did not complete", [("status", "!=", COMPLETED)]
        choices.append(_view("Errors", help, "start", filters, descending=True))
    if "reward_status" in keys:
        help, filters = "episodes without a valid reward", [("reward_status", "!=", "ok")]
        choices.append(_view("Not scored", help, "start", filters, descending=True))
    choices.append(_view("Longest", "the most steps first", "length", descending=True))
    if "surprise" in keys:
        choices.append(_view("Most surprising", "the least likely tokens first", "surprise", descending=True))
    if "advantage" in keys:
        choices.append(_view("Lowest advantage", "the worst of their groups first", "advantage"))
    return choices


def _view(
    name: str,
    help: str,
    sort: str,
    filters: Sequence[tuple[str, str, str]] = (),
    *,
    descending: bool = False,
) -> dict[str, Any]:
    names = ("column", "operator", "value")
    conditions = [dict(zip(names, filter_, strict=True)) for filter_ in filters]
    return {"name": name, "help": help, "filters": conditions, "sort": sort, "descending": descending}
