"""Formatting of numbers, times, counts and recorded text in reports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mttp.model.printable import visible

if TYPE_CHECKING:
    from rich.text import Text

__all__ = [
    "NOTHING",
    "cell",
    "cell_text",
    "count",
    "counted",
    "duration",
    "moment",
    "number",
    "of",
    "printed",
    "shares",
    "shortened",
    "visible",
]

NOTHING = "-"
"""The text for a missing value."""

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def number(value: float | None) -> str:
    """Return a number with four significant digits; integers below a billion in full."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def count(items: int, noun: str) -> str:
    """Return a count with its noun: `1 episode`, `1,445 episodes`."""
    return f"{items:,} {noun}" if items == 1 else f"{items:,} {noun}s"


def counted(items: Mapping[str, int]) -> list[str]:
    """Return `count` of each noun whose number is not 0."""
    return [count(number, noun) for noun, number in items.items() if number]


def duration(seconds: float | None) -> str:
    """Return a duration in the largest unit in which it is 1 or more."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for size, unit in _UNITS:
        if seconds >= size:
            amount = seconds / size
            return f"{amount:,.0f} {unit}" if amount >= 999.5 else f"{amount:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def moment(time: int | None) -> str:
    """Return nanoseconds since the Unix epoch as UTC date and time."""
    if time is None:
        return NOTHING
    return datetime.fromtimestamp(time // 1_000_000_000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def of(items: int, whole: int) -> str:
    """Return `n = 30` if `items` is `whole`, else `25 of 30`."""
    return f"n = {items:,}" if items == whole else f"{items:,} of {whole:,}"


def shares(counts: Mapping[str, int]) -> str:
    """Return counts by word: `success 746, failure 699`."""
    return ", ".join(f"{word or 'none'} {items:,}" for word, items in counts.items()) or NOTHING


def shortened(text: str, limit: int | None = 200, *, hint: str = "") -> str:
    """Return at most `limit` characters and the number of omitted ones; all characters if it is None."""
    if limit is None or len(text) <= limit:
        return text
    more = f"{len(text) - limit:,} more characters" + (f"; {hint}" if hint else "")
    return f"{text[:limit]}… ({more})"


def printed(text: object, *, style: str = "", lines: bool = False) -> Text:
    """Return recorded text without markup and with control characters escaped; `lines` keeps line breaks."""
    from rich.text import Text

    return Text(visible(text, lines=lines), style=style)


def cell(text: str) -> str:
    """Return recorded text as one line for a cell of a Markdown table, with markup escaped."""
    shown = visible(text).replace("\\", "\\\\")
    for mark in "|<>*[]`~&":
        shown = shown.replace(mark, f"\\{mark}")
    return shown


def cell_text(value: object, kind: str = "text") -> str:
    """Return a cell of a page's table as text, as the kind of its column says."""
    if value is None or value == "":
        return NOTHING
    if kind == "share" and isinstance(value, (int, float)):
        return f"{value:.0%}"
    if kind == "seconds" and isinstance(value, (int, float)):
        return duration(value)
    if kind == "time" and isinstance(value, int):
        return moment(value * 1_000_000)
    if kind in ("episode", "episodes"):
        return " ".join(trace_id[:8] for trace_id in str(value).split())
    if kind in ("group", "run"):  # an id, and the name if there is one
        return str(value).partition(" ")[2] or str(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number(value)
    return str(value)
