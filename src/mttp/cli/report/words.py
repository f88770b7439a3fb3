"""Numbers, times and counts in the words of a report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from rich.text import Text

from mttp.model.printable import visible

__all__ = [
    "NOTHING",
    "cell",
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
"""What stands where nothing is known."""

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def number(value: float | None) -> str:
    """Four significant digits; integers whole."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def count(items: int, noun: str) -> str:
    """`1 episode`, `1,445 episodes`."""
    return f"{items:,} {noun}" if items == 1 else f"{items:,} {noun}s"


def counted(items: Mapping[str, int]) -> list[str]:
    """`count` of each noun that there is any of."""
    return [count(number, noun) for noun, number in items.items() if number]


def duration(seconds: float | None) -> str:
    """In the largest unit that leaves a number above one."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def moment(time: int | None) -> str:
    """Nanoseconds since the Unix epoch as UTC date and time."""
    if time is None:
        return NOTHING
    return datetime.fromtimestamp(time // 1_000_000_000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def of(items: int, whole: int) -> str:
    """`n = 30` where it is all of them, else `25 of 30`."""
    return f"n = {items:,}" if items == whole else f"{items:,} of {whole:,}"


def shares(counts: Mapping[str, int]) -> str:
    """`success 746, failure 699`."""
    return ", ".join(f"{word or 'none'} {items:,}" for word, items in counts.items()) or NOTHING


def shortened(text: str, limit: int | None = 200, *, hint: str = "") -> str:
    """At most `limit` characters, and how many more there are; all of them without a limit."""
    if limit is None or len(text) <= limit:
        return text
    more = f"{len(text) - limit:,} more characters" + (f"; {hint}" if hint else "")
    return f"{text[:limit]}… ({more})"


def printed(text: object, *, style: str = "", lines: bool = False) -> Text:
    """
    Recorded text as it may be printed: neither markup nor control characters of it have any effect.

    With `lines`, its line breaks stay.
    """
    return Text(visible(text, lines=lines), style=style)


def cell(text: str) -> str:
    """Recorded text on one line, with nothing in it that would end its cell or be markup."""
    shown = visible(text).replace("\\", "\\\\")
    for mark in "|<>*[]`~&":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
