"""The blocks of a page's sections, as `viewer/src/data.ts` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mttp.reading.jsonable import jsonable, to_json

__all__ = [
    "axis",
    "column",
    "counted",
    "fact",
    "facts",
    "findings",
    "histogram",
    "lines",
    "note",
    "scatter",
    "section",
    "series",
    "state_of",
    "table",
]

Values: TypeAlias = "Sequence[float] | np.ndarray[Any, Any]"
_MOST_BINS = 30
_STATES: Mapping[str, str] = {
    **dict.fromkeys(("better", "gained", "pass", "promote"), "good"),
    **dict.fromkeys(("worse", "lost", "fail", "reject", "error", "high"), "bad"),
    **dict.fromkeys(("inconclusive", "medium"), "warn"),
}


def state_of(word: str) -> str:
    """Return the state of a word for an end or a severity: good, bad, warn or plain."""
    return _STATES.get(word, "plain")


def section(id: str, title: str, blocks: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """A section of the blocks that are not None; None if there are none."""
    kept = [block for block in blocks if block is not None]
    return {"id": id, "title": title, "blocks": kept} if kept else None


def note(text: str, state: str = "plain") -> dict[str, Any]:
    """A sentence; `state` is good, bad, warn or plain."""
    return {"type": "note", "text": text, "state": state}


def fact(label: str, value: Any, *, detail: str = "", state: str = "plain") -> dict[str, Any]:
    """One fact of a list; values that are no numbers, booleans or texts become JSON."""
    is_cell = value is None or isinstance(value, (str, bool, int, float))
    return {
        "label": label,
        "value": jsonable(value) if is_cell else to_json(value),
        "detail": detail,
        "state": state,
    }


def facts(items: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """A list of facts; None without any."""
    return {"type": "facts", "items": list(items)} if items else None


def column(key: str, label: str = "", kind: str = "text", help: str = "") -> dict[str, str]:
    """A column of a table."""
    return {"key": key, "label": label or key.replace("_", " "), "kind": kind, "help": help}


def table(
    title: str,
    columns: Sequence[dict[str, str]],
    rows: Iterable[Sequence[Any]],
    note: str = "",
    *,
    is_folded: bool = False,
) -> dict[str, Any] | None:
    """A table; None without rows. A folded one shows its rows on request."""
    cells = [[jsonable(cell) for cell in one] for one in rows]
    return (
        {
            "type": "table",
            "title": title,
            "columns": columns,
            "rows": cells,
            "note": note,
            "folded": is_folded,
        }
        if cells
        else None
    )


def axis(label: str, kind: str = "number") -> dict[str, str]:
    """An axis; `kind` is number or time."""
    return {"label": label, "kind": kind}


def series(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    dots: bool = False,
) -> dict[str, Any]:
    """One curve; NaN in `y` is a gap."""
    return {
        "name": name,
        "x": jsonable(x),
        "y": jsonable(y),
        "low": jsonable(low),
        "high": jsonable(high),
        "dots": dots,
    }


def lines(
    title: str, x: dict[str, str], y: dict[str, str], curves: Sequence[dict[str, Any]], note: str
) -> dict[str, Any] | None:
    """A chart of curves; None without any value."""
    kept = [one for one in curves if any(value is not None for value in one["y"])]
    return {"type": "lines", "title": title, "x": x, "y": y, "series": kept, "note": note} if kept else None


def histogram(title: str, x: dict[str, str], values: Mapping[str, Values], note: str = "") -> Any:
    """A histogram of the finite values by series, in bins that all series share; None without any."""
    finite = {name: _finite(found) for name, found in values.items()}
    together = np.concatenate([*finite.values(), np.empty(0)])
    if not len(together):
        return None
    edges = np.histogram_bin_edges(together, bins=_bins(together))
    counted = [
        {"name": name, "counts": np.histogram(found, edges)[0].tolist()}
        for name, found in finite.items()
        if len(found)
    ]
    left_out = sum(map(len, values.values())) - len(together)
    missing = f" {left_out:,} without a value are not shown." if left_out else ""
    return {
        "type": "histogram",
        "title": title,
        "x": x,
        "edges": edges.tolist(),
        "series": counted,
        "note": f"{note or 'Number of episodes.'}{missing}",
    }


def _finite(values: Values) -> np.ndarray[Any, Any]:
    found = np.asarray(values, dtype=float)
    finite: np.ndarray[Any, Any] = found[np.isfinite(found)]
    return finite


def _bins(values: np.ndarray[Any, Any]) -> Any:
    """Bins for the values: one for each of a few integers, else as many as Sturges says, within limits."""
    low, high = float(values.min()), float(values.max())
    if np.array_equal(values, np.round(values)) and high - low < _MOST_BINS:
        return np.arange(low - 0.5, high + 1)
    if not np.isfinite(high - low):
        return 1
    count = len(np.histogram_bin_edges(values, bins="sturges")) - 1
    return min(max(count, 10), _MOST_BINS)


def scatter(
    title: str,
    x: dict[str, str],
    y: dict[str, str],
    points: Mapping[str, Sequence[tuple[float, float, str]]],
    note: str,
) -> dict[str, Any] | None:
    """Points by series: x, y and trace id; None without any."""
    drawn = [
        {
            "name": name,
            "x": [one[0] for one in found],
            "y": [one[1] for one in found],
            "episodes": [one[2] for one in found],
        }
        for name, found in points.items()
        if found
    ]
    return (
        {"type": "scatter", "title": title, "x": x, "y": y, "series": drawn, "note": note} if drawn else None
    )


def findings(items: Sequence[dict[str, Any]], note: str) -> dict[str, Any] | None:
    """A list of findings; None without any."""
    return {"type": "findings", "items": list(items), "note": note} if items else None


def counted(counts: Mapping[str, int], *without: str) -> str:
    """Counts by word, without some words: `3 error, 1 missing`."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if name not in without)
