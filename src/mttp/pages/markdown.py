"""Pages as Markdown, for a pull request or the summary of a CI job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mttp.pages.words import cell, cell_text

_MOST_ROWS: Final = 200


def markdown(blocks: Iterable[dict[str, Any] | None], *, everything: bool = False) -> str:
    """Return blocks as Markdown; folded tables are shown with `everything`."""
    lines: list[str] = []
    for block in blocks:
        if block is not None:
            is_folded = block.get("folded") and not everything
            lines += [*(_folded(block) if is_folded else _BLOCKS[block["type"]](block)), ""]
    return "\n".join(lines).rstrip()


def _note(block: Mapping[str, Any]) -> Iterator[str]:
    yield cell(block["text"]) if block["state"] == "plain" else f"**{cell(block['text'])}**"


def _facts(block: Mapping[str, Any]) -> Iterator[str]:
    for fact in block["items"]:
        detail = f": {cell(fact['detail'])}" if fact["detail"] else ""
        yield f"- {cell(fact['label'])}: **{cell(cell_text(fact['value']))}**{detail}"


def _folded(block: Mapping[str, Any]) -> Iterator[str]:
    yield f"{cell(block['title'])}: {len(block['rows']):,}, listed by `--all`"


def _table(block: Mapping[str, Any]) -> Iterator[str]:
    columns, rows = block["columns"], block["rows"]
    shown = [place for place in range(len(columns)) if any(row[place] not in (None, "") for row in rows)]
    yield f"{cell(block['title'])}:"
    yield ""
    yield from _rows([columns[place]["label"] for place in shown])
    yield "|" + " --- |" * len(shown)
    for row in rows[:_MOST_ROWS]:
        yield from _rows([cell_text(row[place], columns[place]["kind"]) for place in shown])
    if len(rows) > _MOST_ROWS:
        yield from ("", f"{len(rows) - _MOST_ROWS:,} more, listed by `--json`")
    if block["note"]:
        yield from ("", cell(block["note"]))


def _rows(cells: Iterable[str]) -> Iterator[str]:
    yield "| " + " | ".join(map(cell, cells)) + " |"


def _findings(block: Mapping[str, Any]) -> Iterator[str]:
    yield from _rows(["severity", "finding", "evidence", "usual fix", "episodes"])
    yield "|" + " --- |" * 5
    for finding in block["items"]:
        episodes = " ".join(trace_id[:8] for trace_id in finding["episodes"])
        words = (finding["severity"], finding["kind"], finding["evidence"], finding["advice"], episodes)
        yield from _rows(words)


_BLOCKS: Final = {"note": _note, "facts": _facts, "table": _table, "findings": _findings}
