"""The blocks of a page and of its sections, as `viewer/src/data.ts` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mttp.pages.words import count
from mttp.reading.jsonable import jsonable, to_json

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "NUMBERS",
    "Block",
    "axis",
    "column",
    "counted",
    "fact",
    "facts",
    "findings",
    "histogram",
    "lines",
    "listed",
    "note",
    "problems",
    "scatter",
    "section",
    "series",
    "state_of",
    "table",
    "warnings",
]

Block: TypeAlias = dict[str, Any]
Values: TypeAlias = "Sequence[float] | np.ndarray[Any, Any]"
_MOST_BINS: Final = 30
_MOST_PROBLEMS: Final = 5
NUMBERS: Final = ("number", "bars", "share", "seconds")
"""The kinds of columns that are aligned on the right."""
_GOOD: Final = "better completed full gained ok pass promote reproduced success"
_BAD: Final = "diverged error errored fail failed failure high invalid lost opaque reject violation worse"
_WARN: Final = (
    "aborted abstained changed improvement inconclusive medium missing partial refused timed_out unfinished "
    "unstable warning"
)
_STATES: Final = {
    word: state
    for state, words in (("good", _GOOD), ("bad", _BAD), ("warn", _WARN))
    for word in words.split()
}


def state_of(word: str) -> str:
    """Return the state of a word for an end, a severity or a failure: good, bad, warn or plain."""
    return _STATES.get(word, "plain")


def section(id: str, title: str, blocks: Iterable[Block | None]) -> Block | None:
    """A section of the blocks that are not None; None if there are none."""
    present = [block for block in blocks if block is not None]
    return {"id": id, "title": title, "blocks": present} if present else None


def note(text: str, state: str = "plain") -> Block:
    """A sentence; `state` is good, bad, warn or plain."""
    return {"type": "note", "text": text, "state": state}


def listed(page: Iterable[Block | None], *, most: int, everything: bool) -> Iterator[Block]:
    """
    Yield the blocks that a page shows as text.

    Without `everything`, a folded table is one sentence, and other tables have at most `most` rows.
    """
    for block in filter(None, page):
        if block.get("type") == "timeline" and not everything:
            yield note(f"{len(block['spans']):,} spans, listed by --full")
        elif everything or block.get("type") != "table":
            yield block
        elif block["folded"]:
            yield note(f"{block['title']}: {len(block['rows']):,}, listed by --all")
        else:
            left_out = len(block["rows"]) - most
            more = f"{left_out:,} more, listed by --json" if left_out > 0 else ""
            text = ". ".join(filter(None, (more, block["note"])))
            yield {**block, "rows": block["rows"][:most], "note": text}


def warnings(sentences: Iterable[str]) -> Iterator[Block]:
    """Yield what a reader must know before the figures."""
    yield from (note(f"warning: {sentence}", "bad") for sentence in sentences)


def problems(items: Sequence[object]) -> Block | None:
    """The number of problems, and the first of them; None without any."""
    left_out = len(items) - _MOST_PROBLEMS
    more = f"{left_out:,} more, listed by --json" if left_out > 0 else ""
    rows = [(str(problem),) for problem in items[:_MOST_PROBLEMS]]
    return table(count(len(items), "problem"), [column("problem")], rows, more)


def fact(label: str, value: Any, *, detail: str = "", state: str = "plain") -> Block:
    """One fact of a list; values that are no numbers, booleans or texts become JSON."""
    is_cell = value is None or isinstance(value, (str, bool, int, float))
    return {
        "label": label,
        "value": jsonable(value) if is_cell else to_json(value),
        "detail": detail,
        "state": state,
    }


def facts(items: Sequence[Block]) -> Block | None:
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
) -> Block | None:
    """A table; None without rows. A folded one shows its rows on request."""
    cells = [[jsonable(cell) for cell in row] for row in rows]
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
) -> Block:
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
    title: str, x: dict[str, str], y: dict[str, str], curves: Sequence[Block], note: str
) -> Block | None:
    """A chart of curves; None without any value."""
    series = [curve for curve in curves if any(value is not None for value in curve["y"])]
    return (
        {"type": "lines", "title": title, "x": x, "y": y, "series": series, "note": note} if series else None
    )


def histogram(title: str, x: dict[str, str], values: Mapping[str, Values], note: str = "") -> Any:
    """A histogram of the finite values by series, in bins that all series share; None without any."""
    import numpy as np

    finite = {name: _finite(numbers) for name, numbers in values.items()}
    together = np.concatenate([*finite.values(), np.empty(0)])
    if not len(together):
        return None
    edges = np.histogram_bin_edges(together, bins=_bins(together))
    counted = [
        {"name": name, "counts": np.histogram(numbers, edges)[0].tolist()}
        for name, numbers in finite.items()
        if len(numbers)
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
    import numpy as np

    numbers = np.asarray(values, dtype=float)
    finite: np.ndarray[Any, Any] = numbers[np.isfinite(numbers)]
    return finite


def _bins(values: np.ndarray[Any, Any]) -> Any:
    """Bins for the values: one for each of a few integers, else as many as Sturges says, within limits."""
    import numpy as np

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
) -> Block | None:
    """Points by series: x, y and trace id; None without any."""
    drawn = [
        {
            "name": name,
            "x": [row[0] for row in rows],
            "y": [row[1] for row in rows],
            "episodes": [row[2] for row in rows],
        }
        for name, rows in points.items()
        if rows
    ]
    return (
        {"type": "scatter", "title": title, "x": x, "y": y, "series": drawn, "note": note} if drawn else None
    )


def findings(items: Sequence[Block], note: str) -> Block | None:
    """A list of findings; None without any."""
    return {"type": "findings", "items": list(items), "note": note} if items else None


def counted(counts: Mapping[str, int], *without: str) -> str:
    """Counts by word, without some words: `3 error, 1 missing`."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if name not in without)
