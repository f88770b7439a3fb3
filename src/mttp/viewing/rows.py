"""Episodes as rows: the columns of the episode browser, and its ready-made views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from mttp.reading.episode_figures import EpisodeFigures
from mttp.reading.jsonable import jsonable

__all__ = ["ColumnKind", "EpisodeColumn", "EpisodeExtras", "columns", "reward_column", "row", "views"]

ColumnKind: TypeAlias = Literal["text", "number", "time", "seconds", "share", "state", "episode", "episodes"]

_MOST_OWN = 12
"""Largest number of columns of components, of metrics, and of metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeExtras:
    """Numbers of an episode that its figures do not hold."""

    advantage: float | None = None
    surprise: float | None = None
    """Mean negative log probability of its sampled tokens, in nats."""


_NO_EXTRAS = EpisodeExtras()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeColumn:
    """A column of the episode browser."""

    key: str
    label: str
    kind: ColumnKind
    of: Callable[[EpisodeFigures, EpisodeExtras], Any]
    help: str = ""
    is_always_shown: bool = False

    def to_dict(self) -> dict[str, str]:
        """The column as data of the page."""
        return {"key": self.key, "label": self.label, "kind": self.kind, "help": self.help}


def _field(
    key: str, label: str, kind: ColumnKind, name: str = "", *, help: str = "", always: bool = False
) -> EpisodeColumn:
    of = attrgetter(name or key)
    return EpisodeColumn(
        key=key, label=label, kind=kind, of=lambda one, _: of(one), help=help, is_always_shown=always
    )


_FIXED = (
    _field("episode", "episode", "episode", "trace_id", always=True),
    EpisodeColumn(
        key="start",
        label="started",
        kind="time",
        of=lambda one, _: one.start_time // 1_000_000 or None,
        is_always_shown=True,
    ),
    _field("env", "environment", "text"),
    _field("task", "task", "text"),
    EpisodeColumn(
        key="outcome",
        label="outcome",
        kind="state",
        of=lambda one, _: None if one.outcome == "unknown" else one.outcome,
    ),
    _field("status", "status", "state", always=True),
    _field(
        "return", "return", "number", "return_", always=True, help="sum of step rewards, or the stated total"
    ),
    _field("reward", "reward", "number", help="value of the reward of the whole episode"),
    _field("reward_status", "reward status", "state"),
    EpisodeColumn(key="advantage", label="advantage", kind="number", of=lambda _, more: more.advantage),
    _field("length", "steps", "number", always=True),
    _field("tokens", "tokens", "number", help="prompt and completion tokens"),
    _field("duration", "seconds", "seconds"),
    _field("latency", "latency", "seconds", help="mean seconds of its model calls"),
    _field("cost", "cost", "number", help="US dollars"),
    EpisodeColumn(
        key="surprise",
        label="surprise",
        kind="number",
        of=lambda _, more: more.surprise,
        help="mean negative log probability of its sampled tokens, in nats",
    ),
    EpisodeColumn(
        key="failed_checks",
        label="failed checks",
        kind="text",
        of=lambda one, _: ", ".join(one.failed_checks) or None,
    ),
    _field("stop_reason", "stop reason", "text"),
    _field("split", "split", "text"),
    EpisodeColumn(key="slices", label="slices", kind="text", of=lambda one, _: ", ".join(one.slices) or None),
    _field("group", "group", "text"),
    _field("seed", "seed", "text"),
    _field("policy_version", "policy version", "text"),
    _field("run", "run", "text"),
)


def columns(episodes: Sequence[EpisodeFigures], extras: Mapping[str, EpisodeExtras]) -> list[EpisodeColumn]:
    """The columns with a value in any of the episodes, and those that are always shown."""
    candidates = [*_FIXED[:8], *_own("components", episodes), *_FIXED[8:]]
    candidates += [*_own("metrics", episodes), *_own("metadata", episodes)]
    idle = set()
    if all(one.reward_status == "missing" for one in episodes):
        idle.add("reward_status")  # the run gives its rewards by steps
    if len({one.run for one in episodes}) < 2:
        idle.add("run")
    candidates = [one for one in candidates if one.key not in idle]
    return [one for one in candidates if one.is_always_shown or _has_values(one, episodes, extras)]


def _has_values(
    column: EpisodeColumn, episodes: Iterable[EpisodeFigures], extras: Mapping[str, EpisodeExtras]
) -> bool:
    return any(column.of(one, extras.get(one.trace_id, _NO_EXTRAS)) not in (None, "") for one in episodes)


def _own(
    head: Literal["components", "metrics", "metadata"], episodes: Iterable[EpisodeFigures]
) -> list[EpisodeColumn]:
    """A column for each of the first names."""
    of = attrgetter(head)
    names = dict.fromkeys(name for one in episodes for name in of(one))
    kind: ColumnKind = "text" if head == "metadata" else "number"
    return [
        EpisodeColumn(
            key=f"{head}.{name}", label=name, kind=kind, of=_getter(of, name), help=f"{head}.{name}"
        )
        for name in [*names][:_MOST_OWN]
    ]


def _getter(of: Callable[[EpisodeFigures], Mapping[str, Any]], name: str) -> Callable[..., Any]:
    return lambda one, _: of(one).get(name)


def row(one: EpisodeFigures, shown: Iterable[EpisodeColumn], extras: EpisodeExtras = _NO_EXTRAS) -> list[Any]:
    """The cells of an episode."""
    return [jsonable(column.of(one, extras)) for column in shown]


def reward_column(shown: Iterable[EpisodeColumn]) -> str:
    """The column by which episodes are called good or bad: `reward` if there is one, else `return`."""
    return "reward" if any(column.key == "reward" for column in shown) else "return"


def views(shown: Sequence[EpisodeColumn], episodes: Sequence[EpisodeFigures]) -> list[dict[str, Any]]:
    """The ready-made choices of episodes: those where reward and outcome disagree first."""
    keys, score = {column.key for column in shown}, reward_column(shown)
    outcomes = {one.outcome for one in episodes}
    found = [_view("All", "every episode, the last one first", [], "start", descending=True)]
    if "failure" in outcomes:
        help, filters = "failed episodes, the highest reward first", [("outcome", "=", "failure")]
        found.append(_view("High reward, failed", help, filters, score, descending=True))
    if "success" in outcomes:
        help, filters = "successful episodes, the lowest reward first", [("outcome", "=", "success")]
        found.append(_view("Low reward, succeeded", help, filters, score))
    found.append(_view("Worst", "the lowest reward first", [], score))
    found.append(_view("Best", "the highest reward first", [], score, descending=True))
    if any(one.status != "completed" for one in episodes):
        help, filters = "episodes that did not complete", [("status", "!=", "completed")]
        found.append(_view("Errors", help, filters, "start", descending=True))
    if "reward_status" in keys:
        help, filters = "episodes without a valid reward", [("reward_status", "!=", "ok")]
        found.append(_view("Not scored", help, filters, "start", descending=True))
    found.append(_view("Longest", "the most steps first", [], "length", descending=True))
    if "surprise" in keys:
        found.append(
            _view("Most surprising", "the least likely tokens first", [], "surprise", descending=True)
        )
    if "advantage" in keys:
        found.append(_view("Lowest advantage", "the worst of their groups first", [], "advantage"))
    return found


def _view(
    name: str, help: str, filters: Sequence[tuple[str, str, str]], sort: str, *, descending: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "help": help,
        "filters": [
            {"column": column, "operator": operator, "value": value} for column, operator, value in filters
        ],
        "sort": sort,
        "descending": descending,
    }
