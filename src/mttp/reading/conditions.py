"""Conditions on episodes as text, such as `status=error`, `return>0.5` or `task~^train/`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal, TypeAlias

from mttp.errors import ReadError
from mttp.model.episodes import Episode
from mttp.semconv import attributes as a
from mttp.semconv import registry

__all__ = ["COLUMNS", "MAPS", "Condition", "condition"]

Condition: TypeAlias = Callable[[Episode], bool]
"""Whether an episode is wanted."""
_Kind: TypeAlias = Literal["text", "texts", "number", "flag", "time", "any"]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that conditions can compare."""

    kind: _Kind
    """Type of its values, which determines the operators."""
    of: Callable[[Episode], Any]
    """Returns the value of an episode; None if unknown."""


def _field(name: str) -> Callable[[Episode], Any]:
    return lambda episode: getattr(episode, name) or None


COLUMNS: Final[Mapping[str, _Column]] = {
    "episode": _Column("text", _field("trace_id")),
    "run": _Column("text", _field("run_id")),
    "env": _Column("text", _field("env")),
    "task": _Column("text", _field("task")),
    "split": _Column("text", _field("split")),
    "slice": _Column("texts", lambda episode: episode.slices),
    "group": _Column("text", _field("group")),
    "policy": _Column("text", _field("policy")),
    "status": _Column("text", _field("status")),
    "outcome": _Column("text", _field("outcome")),
    "stop_reason": _Column("text", _field("stop_reason")),
    "error_type": _Column("text", _field("error_type")),
    "fault": _Column("texts", lambda episode: episode.faults),
    "spec": _Column("text", lambda episode: episode.reward.spec and episode.reward.spec.name),
    "spec_version": _Column("text", lambda episode: episode.reward.spec and episode.reward.spec.version),
    "verdict": _Column("text", lambda episode: episode.reward.verdict),
    "failed_check": _Column("texts", lambda episode: episode.reward.failed_checks),
    "reward_status": _Column("text", lambda episode: episode.reward.status),
    "reward": _Column("number", lambda episode: episode.reward.value),
    "return": _Column("number", lambda episode: episode.return_),
    "length": _Column("number", lambda episode: episode.length),
    "duration": _Column("number", lambda episode: episode.duration),
    "advantage": _Column("number", lambda episode: episode.advantage),
    "cost_usd": _Column("number", lambda episode: episode.cost_usd),
    "seed": _Column("any", lambda episode: episode.seed),
    "terminated": _Column("flag", lambda episode: episode.terminated),
    "truncated": _Column("flag", lambda episode: episode.truncated),
    "complete": _Column("flag", lambda episode: episode.complete),
    "start": _Column("time", lambda episode: episode.start_time),
}
"""Columns that conditions can compare, by name."""
MAPS: Final[Mapping[str, Callable[[Episode], Mapping[str, Any]]]] = {
    "metrics": lambda episode: episode.metrics,
    "metadata": lambda episode: episode.metadata,
    "components": lambda episode: episode.reward.components,
}
"""Maps with the user's own names, written after a dot: `metrics.kl`, `components.format`."""

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": (*sorted(registry.known_values(a.EPISODE_STATUS)), "unfinished"),
    "reward_status": tuple(sorted(registry.known_values(a.REWARD_STATUS))),
}
"""Valid values of columns with a closed set of values."""
_CONDITION = re.compile(r"\s*([\w.:/-]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NONE: Final = "none"
_FLAGS: Final = {"true": True, "false": False}


def condition(text: str) -> Condition:
    """
    Parse a condition: a column, one of `= != < <= > >= ~`, and a value.

    `~` searches for a regular expression. The value `none` matches unknown values, which are neither less
    nor greater than any other value.
    Raises ReadError if the text is not a condition.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ReadError(
            f"{text!r} is not a condition; write one such as status=error, return>0.5 or task~^train/"
        )
    name, sign, value = found.groups()
    column = _column(name)
    words = _WORDS.get(name)
    if words is not None and sign in ("=", "!=") and value not in (*words, _NONE):
        other = next((key for key, known in _WORDS.items() if value in known), None)
        advice = f"; {value!r} is a {other}" if other else ""
        raise ReadError(f"{text!r}: {name} is one of {', '.join(words)}{advice}")
    try:
        holds = _test(column.kind, sign, value)
    except ValueError as error:
        raise ReadError(f"{text!r}: {error}") from error
    return lambda episode: holds(column.of(episode))


def _column(name: str) -> _Column:
    prefix, dot, key = name.partition(".")
    if dot and prefix in MAPS:
        own = MAPS[prefix]
        return _Column("any", lambda episode: own(episode).get(key))
    if name not in COLUMNS:
        maps = ", ".join(f"{prefix}.NAME" for prefix in MAPS)
        raise ReadError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}, {maps}")
    return COLUMNS[name]


def _test(kind: _Kind, sign: str, text: str) -> Callable[[Any], bool]:
    """A test of values of that kind; raises ValueError if the operator does not apply to the kind."""
    if sign == "~":
        return _search(text)
    if sign in _ORDERS:
        if kind in ("text", "texts", "flag"):
            raise ValueError(f"{sign} compares numbers and times; text is compared by =, != and ~")
        return _compare(_ORDERS[sign], _value("number" if kind == "any" else kind, text))
    equal = _equal(kind, text)
    return equal if sign == "=" else lambda value: not equal(value)


def _search(text: str) -> Callable[[Any], bool]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return lambda value: any(pattern.search(_written(one)) for one in _several(value))


def _several(value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def _written(value: Any) -> str:
    """A value in the notation of conditions."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare(order: Callable[[Any, Any], bool], stated: Any) -> Callable[[Any], bool]:
    return lambda value: _is_number(value) and order(value, stated)


def _equal(kind: _Kind, text: str) -> Callable[[Any], bool]:
    if text == _NONE:
        return lambda value: value is None or value in ((), [])
    if kind == "texts":
        return lambda value: text in value
    if kind == "any":
        return lambda value: (_is_number(value) and value == _number_of(text)) or _written(value) == text
    stated = _value(kind, text)
    return lambda value: bool(value == stated)


def _value(kind: _Kind, text: str) -> Any:
    """`text` as a value of that kind; raises ValueError."""
    if kind == "number":
        found = _number_of(text)
        if found is None:
            raise ValueError(f"{text!r} is not a number")
        return found
    if kind == "flag":
        if text not in _FLAGS:
            raise ValueError(f"{text!r} is neither true nor false")
        return _FLAGS[text]
    return _nanoseconds(text) if kind == "time" else text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number_of(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return None if math.isnan(found) else found


def _nanoseconds(text: str) -> int:
    """A date, or date and time, in nanoseconds since 1970; UTC unless it has a time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:30") from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=timezone.utc)
    return int(found.timestamp() * 1e9)
