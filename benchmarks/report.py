"""The rows and the table of the realistic workload, for a terminal and as Markdown."""

from __future__ import annotations

import os
import platform
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from harness import Rounds

__all__ = ["documented", "machine", "printed", "written"]

WIDTH, LABEL = 80, 38
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
COLUMNS = {
    "mean_us": "mean µs",
    "median_us": "median µs",
    "p99_us": "p99 µs",
    "stall_ms": "stall ms",
    "cpu_us": "CPU µs",
    "close_s": "close s",
    "memory_mb": "peak MB",
    "arrived_pct": "there %",
}
"""Columns of the realistic workload: the figure and its heading."""


def machine() -> dict[str, Any]:
    """Return the machine and its load."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load": round(os.getloadavg()[0], 1),
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# Text.


def printed(rows: Sequence[Mapping[str, Any]], realistic: Rounds, about: str) -> str:
    """Return the report, 80 columns wide."""
    lines = [f"{'':{LABEL}}{'median':>8} {'lowest to highest':^20} must"]
    for row in rows:
        lines += _row(row)
        if row.get("absent"):
            lines += textwrap.wrap(row["absent"].splitlines()[0], WIDTH - 6, initial_indent=" " * 6)
    if realistic:
        lines += ["", *_peers(realistic)]
    return "\n".join([*lines, "", *textwrap.wrap(about, WIDTH)])


def _row(row: Mapping[str, Any]) -> list[str]:
    """Return a heading and a line per part, or one line if there is one part and it fits."""
    head, parts = f"{row['number']:>2}  {row['text']}", [_line(part) for part in row["parts"]]
    if [part["text"] for part in row["parts"]] == [""] and len(head) < LABEL:
        return [head + parts[0][len(head) :]]
    return [head, *parts]


def _line(part: Mapping[str, Any]) -> str:
    unit = part["unit"]
    return (
        f"      {part['text']:{LABEL - 6}}{_shown(part['median'], unit):>8} {_spread(part):^20} "
        f"{_bound(part):5} {part['verdict']}".rstrip()
    )


def _peers(rounds: Rounds) -> list[str]:
    headings = [text.split() for text in COLUMNS.values()]
    lines = ["Chats for 10 seconds from a fresh process, medians of all rounds, per step"]
    lines += [f"{'':24}" + "".join(f"{heading[place]:>7}" for heading in headings) for place in range(2)]
    for case, figures in _medians(rounds).items():
        lines.append(f"{case:24}" + "".join(f"{_number(figures[name]):>7}" for name in COLUMNS))
    return lines


# Markdown.


def documented(rows: Sequence[Mapping[str, Any]], realistic: Rounds, about: str) -> str:
    """Return the report as Markdown."""
    lines = [
        "| | what | | median | lowest to highest | must | good | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        number, text = row["number"], row["text"]
        for part in row["parts"]:
            cells = [number, text, part["text"], _shown(part["median"], part["unit"]), _spread(part)]
            lines.append(_cells(*cells, _bound(part), _bound(part, "good"), part["verdict"]))
            number = text = ""
        if row.get("absent"):
            lines.append(_cells(number, text, row["absent"].splitlines()[0], "", "", "", "", ""))
    if realistic:
        lines += ["", "Chats for 10 seconds from a fresh process, medians of all rounds, per step:", ""]
        lines += [_cells("", *COLUMNS.values()), _cells(*["---"] * (1 + len(COLUMNS)))]
        for case, figures in _medians(realistic).items():
            lines.append(_cells(case, *(_number(figures[name]) for name in COLUMNS)))
    return "\n".join([*lines, "", about])


def written(page: Path, figures: str) -> None:
    """Write the figures between the markers of the page."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        sys.exit(f"{page} has no lines {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{figures}\n{END}{rest.partition(END)[2]}")


def _cells(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


# Numbers.


def _medians(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Return the median of each figure, by case."""
    found: dict[str, dict[str, float]] = {}
    for case in rounds[0]:
        rows = [one[case] for one in rounds if case in one]
        found[case] = {name: median(row[name] for row in rows) for name in rows[0]}
    return found


def _bound(part: Mapping[str, Any], name: str = "must") -> str:
    return "" if part[name] is None else f"{part[name]:g}{_spaced(part['unit'])}"


def _spread(part: Mapping[str, Any]) -> str:
    return f"{_number(part['lowest'])} to {_shown(part['highest'], part['unit'])}"


def _shown(value: float, unit: str) -> str:
    return f"{_number(value)}{_spaced(unit)}"


def _spaced(unit: str) -> str:
    return unit if unit in ("x", "") else f" {unit}"


def _number(value: float) -> str:
    """Format a number with three significant digits, or all digits of its integer part."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2f}"
