"""Conditions of `--where`: a column, an operator and a value, or SQL, over the table of episodes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mttp.errors import ReadError

if TYPE_CHECKING:
    from mttp.model.episodes import Episode
    from mttp.tables import Database

_Kind: TypeAlias = Literal["text", "texts", "number", "flag", "time", "any"]

COLUMNS: Final[Mapping[str, tuple[str, _Kind]]] = {
    "episode": ("trace_id", "text"),
    "run": ("run_id", "text"),
    "env": ("env", "text"),
    "task": ("task", "text"),
    "split": ("split", "text"),
    "slice": ("slices", "texts"),
    "group": ("group", "text"),
    "policy": ("policy", "text"),
    "status": ("status", "text"),
    "outcome": ("outcome", "text"),
    "stop_reason": ("stop_reason", "text"),
    "error_type": ("error_type", "text"),
    "fault": ("faults", "texts"),
    "spec": ("spec_name", "text"),
    "spec_version": ("spec_version", "text"),
    "verdict": ("verdict", "text"),
    "failed_check": ("failed_checks", "texts"),
    "reward_status": ("reward_status", "text"),
    "reward": ("reward", "number"),
    "return": ("return", "number"),
    "length": ("length", "number"),
    "duration": ("duration", "number"),
    "advantage": ("advantage", "number"),
    "cost_usd": ("cost_usd", "number"),
    "seed": ("seed", "any"),
    "terminated": ("terminated", "flag"),
    "truncated": ("truncated", "flag"),
    "complete": ("complete", "flag"),
    "start": ("start_time", "time"),
    "prompt": ("prompt", "text"),
    "completion": ("completion", "text"),
    "text": ("concat_ws(chr(10), prompt, completion, exchange, error_type, error_message)", "text"),
}
"""Columns of the table of episodes, with the kinds of their values, by their names in conditions."""
MAPS: Final = ("metrics", "metadata", "components")
"""Columns with the user's own names, written after a dot: `metrics.kl`, `components.format`."""

_CONDITION = re.compile(r"\s*([\w.:/-]+?)\s*(!=|<=|>=|=|<|>|~)(?!\s*')\s*(.*?)\s*", re.DOTALL)
_ORDERS: Final = ("<", "<=", ">", ">=")
_NONE: Final = "none"


def predicate(paths: Sequence[str], texts: Sequence[str] | None) -> Callable[[Episode], bool] | None:
    """
    Return whether all conditions hold for an episode of recordings, as `Recording.filter` takes it.

    Raises ReadError for a text that is no condition.
    """
    if not texts:
        return None
    ids = matching(paths, texts)
    return lambda episode: episode.trace_id in ids


def matching(paths: Sequence[str], texts: Sequence[str]) -> set[str]:
    """
    Return the trace ids of the episodes of recordings for which all conditions hold.

    Raises ReadError for a text that is no condition.
    """
    from mttp.tables import Database

    with Database([*paths]) as database:
        return set.intersection(*(_matching(database, text) for text in texts))


def selection(paths: Sequence[str], texts: Sequence[str]) -> set[str]:
    """
    Return the trace ids of recordings without those of episodes for which not all conditions hold.

    Raises ReadError for a text that is no condition.
    """
    from mttp.tables import Database

    with Database([*paths]) as database:
        ids = set.intersection(*(_matching(database, text) for text in texts))
        query = "SELECT DISTINCT trace_id FROM spans WHERE trace_id NOT IN (SELECT trace_id FROM episodes)"
        return ids | {row["trace_id"] for row in database.sql(query).rows()}


def _matching(database: Database, text: str) -> set[str]:
    try:
        condition, no_condition = as_sql(text), None
    except ReadError as error:
        condition, no_condition = text, error
    try:
        rows = database.sql(f"SELECT trace_id FROM episodes WHERE ({condition}\n)").rows()
    except ReadError as error:
        if no_condition is None:
            raise ReadError(f"{text!r}: {error}") from error
        raise ReadError(f"{no_condition}; nor is it SQL over the table of episodes: {error}") from error
    return {row["trace_id"] for row in rows}


def as_sql(text: str) -> str:
    """
    Return a condition, which is a column, one of `= != < <= > >= ~`, and a value, as SQL.

    `~` searches for a regular expression. The value `none` matches missing values, which are neither less
    nor greater than any other value. A value in single quotes is SQL.
    Raises ReadError if the text is no such condition.
    """
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise ReadError(
            f"{text!r} is not a condition; write one such as status=error, return>0.5 or task~^train/"
        )
    name, sign, value = parts.groups()
    column, kind = _column(name)
    closed = _closed_sets()
    words = closed.get(name)
    if words is not None and sign in ("=", "!=") and value not in (*words, _NONE):
        other = next((key for key, known in closed.items() if value in known), None)
        advice = f"; {value!r} is a {other}" if other else ""
        raise ReadError(f"{text!r}: {name} is one of {', '.join(words)}{advice}")
    try:
        condition = _test(column, kind, "=" if sign == "!=" else sign, value)
    except ValueError as error:
        raise ReadError(f"{text!r}: {error}") from error
    return f"{'NOT ' if sign == '!=' else ''}coalesce({condition}, false)"


def _closed_sets() -> dict[str, list[str]]:
    """Return the valid values of columns with a closed set of values."""
    from mttp.semconv import attributes as a
    from mttp.semconv import registry

    return {
        "status": [*sorted(registry.known_values(a.EPISODE_STATUS)), "unfinished"],
        "reward_status": sorted(registry.known_values(a.REWARD_STATUS)),
    }


def _column(name: str) -> tuple[str, _Kind]:
    prefix, dot, key = name.partition(".")
    if dot and prefix in MAPS:
        return f"{prefix}[{_quoted(key)}]", "any"
    if name not in COLUMNS:
        maps = ", ".join(f"{prefix}.NAME" for prefix in MAPS)
        raise ReadError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}, {maps}")
    column, kind = COLUMNS[name]
    return f'"{column}"' if column.isidentifier() else column, kind


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _test(column: str, kind: _Kind, sign: str, text: str) -> str:
    """Return the test of a column as SQL; raises ValueError if the operator does not apply to its kind."""
    if sign == "~":
        return _search(column, kind, text)
    if sign in _ORDERS:
        if kind in ("text", "texts", "flag"):
            raise ValueError(f"{sign} compares numbers and times; text is compared by =, != and ~")
        value = _nanoseconds(text) if kind == "time" else _number(text)
        return f"{column if kind == 'time' else _as_number(column)} {sign} {value}"
    if text == _NONE:
        return f"coalesce(len({column}), 0) = 0" if kind in ("text", "texts") else f"{column} IS NULL"
    if kind == "texts":
        return f"list_contains({column}, {_quoted(text)})"
    if kind == "any":
        return _equal_to_any(column, text)
    if kind == "number":
        return f"{_as_number(column)} = {_number(text)}"
    if kind == "flag":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return f"{column} = {text}"
    return f"{column} = {_nanoseconds(text) if kind == 'time' else _quoted(text)}"


def _search(column: str, kind: _Kind, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if kind == "texts":
        return f"len(list_filter({column}, lambda text: regexp_matches(text, {_quoted(pattern)}))) > 0"
    return f"regexp_matches({column}::VARCHAR, {_quoted(pattern)})"


def _equal_to_any(column: str, text: str) -> str:
    written = f"{column}::VARCHAR"
    same = f"{'lower(' + written + ')' if text in ('true', 'false') else written} = {_quoted(text)}"
    try:
        return f"{same} OR {_as_number(column)} = {_number(text)}"
    except ValueError:
        return same


def _as_number(column: str) -> str:
    """Return a column as numbers; what is none, and NaN, is missing."""
    return f"nullif(try_cast({column} AS DOUBLE), 'nan'::DOUBLE)"


def _number(text: str) -> str:
    """Return a number as SQL; raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"{text!r} is not a number")
    return f"{_quoted(repr(number))}::DOUBLE"


def _nanoseconds(text: str) -> int:
    """Return a date, or date and time, in nanoseconds since 1970; UTC unless it has a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:30") from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return int(time.timestamp() * 1e9)
