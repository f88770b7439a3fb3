"""Numbers, times and counts in the words of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone

from rich.text import Text

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
]

NOTHING = "-"
"""What stands where nothing is known."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_VISIBLE = {"\n": "⏎", "\t": " ", "\r": ""}
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


def shortened(text: str, limit: int = 200) -> str:
    """At most `limit` characters, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def printed(text: object, *, style: str = "", shrinks: bool = False) -> Text:
    """
    Recorded text as it may be printed: neither markup nor control characters of it have any effect.

    One that `shrinks` loses its end where a column is too narrow.
    """
    visible = _CONTROL.sub(lambda found: _VISIBLE.get(found[0], f"\\x{ord(found[0]):02x}"), str(text))
    if shrinks:
        return Text(visible, style=style, no_wrap=True, overflow="ellipsis")
    return Text(visible, style=style)


def cell(text: str) -> str:
    """Recorded text on one line, with nothing in it that would end its cell or be markup."""
    visible = printed(text).plain.replace("\\", "\\\\")
    for mark in "|<>*[]":
        visible = visible.replace(mark, f"\\{mark}")
    return visible
