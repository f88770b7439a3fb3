"""Pages as Markdown, for a pull request or the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from mttp.pages.blocks import NUMBERS, Block, listed
from mttp.pages.charts import CHARTS, sparklines
from mttp.pages.plain import LINED, lines
from mttp.pages.words import cell, cell_text, shortened, visible

_MOST_ROWS: Final = 200
_MOST_TEXT: Final = 2_000
"""The number of characters of a text of an episode."""


def markdown(page: Iterable[Block | None], *, everything: bool = False) -> str:
    """Return blocks and sections as Markdown; with `everything` also what is folded, and all rows."""
    return "\n".join(_lines(page, everything=everything)).rstrip()


def _lines(page: Iterable[Block | None], *, everything: bool) -> Iterator[str]:
    for block in listed(page, most=_MOST_ROWS, everything=everything):
        if block.get("type") is None:
            yield from (f"### {cell(block['title'])}", "")
            yield from _lines(block["blocks"], everything=everything)
        elif block["type"] in LINED:
            yield from (*_lined(block, None if everything else _MOST_TEXT), "")
        else:
            yield from (*_BLOCKS[block["type"]](block), "")


def _note(block: Block) -> Iterator[str]:
    yield cell(block["text"]) if block["state"] == "plain" else f"**{cell(block['text'])}**"


def _facts(block: Block) -> Iterator[str]:
    for fact in block["items"]:
        detail = f": {cell(fact['detail'])}" if fact["detail"] else ""
        yield f"- {cell(fact['label'])}: **{cell(cell_text(fact['value']))}**{detail}"


def _table(block: Block) -> Iterator[str]:
    columns, rows = block["columns"], block["rows"]
    shown = [place for place in range(len(columns)) if any(row[place] not in (None, "") for row in rows)]
    if block["title"]:
        yield from (f"{cell(block['title'])}:", "")
    cells = [[cell_text(row[place], columns[place]["kind"]) for place in shown] for row in rows]
    if len(columns) == 1 and block["title"]:
        yield from (f"- {cell(row[0])}" for row in cells)
    else:
        aligned = (" ---: " if columns[place]["kind"] in NUMBERS else " --- " for place in shown)
        yield from _rows([columns[place]["label"] for place in shown])
        yield f"|{'|'.join(aligned)}|"
        for row in cells:
            yield from _rows(row)
    if block["note"]:
        yield from ("", cell(block["note"]))


def _rows(cells: Iterable[str]) -> Iterator[str]:
    yield "| " + " | ".join(map(cell, cells)) + " |"


def _lined(block: Block, limit: int | None) -> Iterator[str]:
    """Yield a block as a nested list; a text of several lines is a fenced block."""
    for line in lines(block):
        indent, text = "  " * line.depth, shortened(line.text.strip("\n"), limit, hint="--full shows all")
        name = f"**{cell(line.name)}**" if line.name else ""
        if "\n" not in text:
            yield f"{indent}- {' '.join(filter(None, (name, cell(text))))}"
            continue
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield f"{indent}- {name}"
        yield from (
            f"{indent}  {each}" for each in ("", fence, *visible(text, lines=True).split("\n"), fence, "")
        )


def _findings(block: Block) -> Iterator[str]:
    yield from _rows(["severity", "finding", "evidence", "usual fix", "episodes"])
    yield "|" + " --- |" * 5
    for finding in block["items"]:
        episodes = " ".join(trace_id[:8] for trace_id in finding["episodes"])
        words = (finding["severity"], finding["kind"], finding["evidence"], finding["advice"], episodes)
        yield from _rows(words)


def _chart(block: Block) -> Iterator[str]:
    yield f"{cell(block['title'])}:"
    for line in sparklines(block):
        yield from ("", cell(line))
    if block["note"]:
        yield from ("", cell(block["note"]))


_BLOCKS: Final = {
    "note": _note,
    "facts": _facts,
    "table": _table,
    "findings": _findings,
    **dict.fromkeys(CHARTS, _chart),
}
