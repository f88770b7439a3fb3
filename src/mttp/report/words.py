"""Numbers, times and counts in the words of a report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

__all__ = ["NOTHING", "count", "duration", "moment", "number", "shares", "shortened"]

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


def duration(seconds: float | None) -> str:
    """In the largest unit that leaves a number above one."""
    if seconds is None:
        return NOTHING
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def moment(time: int | None) -> str:
    """Nanoseconds since the Unix epoch as UTC date and time."""
    if time is None:
        return NOTHING
    return datetime.fromtimestamp(time // 1_000_000_000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def shares(counts: Mapping[str, int]) -> str:
    """`success 746, failure 699`."""
    return ", ".join(f"{word or 'none'} {items:,}" for word, items in counts.items()) or NOTHING


def shortened(text: str, limit: int = 200) -> str:
    """One line of at most `limit` characters, and how many more there are."""
    line = text.replace("\r", "").replace("\n", "⏎")
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line) - limit:,} more characters)"
