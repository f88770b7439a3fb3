"""Pages for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from mttp.pages.blocks import NUMBERS, Block, listed, state_of
from mttp.pages.charts import CHARTS, plot, sparklines
from mttp.pages.listing import Listing
from mttp.pages.plain import LINED, lines
from mttp.pages.words import cell_text, printed, shortened

_MOST_ROWS: Final = 50
_INDENT: Final = 2
_MOST_TEXT: Final = 400
"""The number of characters of a text of an episode."""
_STYLES: Final[Mapping[str, str]] = {"good": "green", "bad": "red", "warn": "yellow", "plain": ""}


def render(page: Iterable[Block | None], *, everything: bool = False) -> RenderableType:
    """Return blocks and sections for a terminal; with `everything` also what is folded, and all rows."""
    return Group(*_parts(page, everything=everything))


def _parts(page: Iterable[Block | None], *, everything: bool) -> Iterator[RenderableType]:
    before: Block | None = None
    for block in listed(page, most=_MOST_ROWS, everything=everything):
        if before is not None and _is_apart(block, before):
            yield Text()
        before = block
        if block.get("type") is None:
            yield printed(block["title"], style="bold underline")
            yield from _parts(block["blocks"], everything=everything)
        elif block["type"] in LINED:
            yield from _lined(block, None if everything else _MOST_TEXT)
        else:
            yield from _BLOCKS[block["type"]](block)


def _is_apart(block: Block, before: Block) -> bool:
    """Return whether a line separates a block from the one before; notes of one state, and lines, follow."""
    is_note = block.get("type") == "note"
    if block.get("type") in LINED:
        return before.get("type") not in LINED
    return not is_note or block["state"] not in ("plain", before.get("state"))


def _note(block: Block) -> Iterator[RenderableType]:
    style = _STYLES[block["state"]]
    yield printed(block["text"], style=f"bold {style}" if style else "")


def _facts(block: Block) -> Iterator[RenderableType]:
    width = max(len(fact["label"]) for fact in block["items"])
    for fact in block["items"]:
        label = Text(f"{fact['label']:<{width}}  ", style="bold")
        value = printed(cell_text(fact["value"]), style=_STYLES[fact["state"]])
        yield Text.assemble(label, value, printed(f": {fact['detail']}" if fact["detail"] else ""))


def _table(block: Block) -> Iterator[RenderableType]:
    columns, rows = block["columns"], block["rows"]
    if block["title"]:
        yield printed(block["title"], style="bold")
    cells = [[*map(_cell, row, columns)] for row in rows]
    names = [*map(str, range(len(columns)))]
    if len(columns) == 1 and block["title"]:  # a list
        yield from (Padding(row[0], (0, 0, 0, _INDENT), expand=False) for row in cells)
    else:
        yield Listing(
            rows=[dict(zip(names, row, strict=True)) for row in cells],
            important=names,
            right=[name for name, column in zip(names, columns, strict=True) if column["kind"] in NUMBERS],
            titles={name: column["label"] for name, column in zip(names, columns, strict=True)},
        )
    if block["note"]:
        yield printed(block["note"])


def _cell(value: Any, column: Mapping[str, str]) -> Text:
    """Return a cell; what counts a failure has its colour."""
    text = printed(cell_text(value, column["kind"]))
    if column["kind"] == "state":
        text.stylize(_STYLES[state_of(text.plain)])
    elif column["kind"] == "number" and value and (state := state_of(column["key"])) != "good":
        text.stylize(_STYLES[state])
    return text


def _lined(block: Block, limit: int | None) -> Iterator[RenderableType]:
    for line in lines(block):
        text = shortened(line.text.rstrip("\n"), limit, hint="--full shows all")
        gap = "" if not line.name or not text else "\n" if "\n" in text else "  "
        named = printed(line.name, style="bold").append_text(Text(gap, style="not bold"))
        shown = named.append_text(printed(text, style=f"not bold {_STYLES[line.state]}".rstrip(), lines=True))
        yield Padding(shown, (0, 0, 0, _INDENT * line.depth), expand=False)


def _findings(block: Block) -> Iterator[RenderableType]:
    for number, finding in enumerate(block["items"]):
        if number:
            yield Text()
        severity = Text(finding["severity"], style=f"bold {_STYLES[finding['state']]}".strip())
        yield Text.assemble(severity, f"  {finding['kind']}")
        lines = [finding["evidence"]]
        if finding["episodes"]:
            lines.append(f"episodes: {' '.join(trace_id[:8] for trace_id in finding['episodes'])}")
        for line in [*lines, f"usual fix: {finding['advice']}"]:
            yield Padding(printed(line), (0, 0, 0, _INDENT), expand=False)


@dataclass(frozen=True, slots=True)
class _Chart:
    """A chart: on a terminal one curve is a plot of several lines."""

    block: Block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield printed(self.block["title"], style="bold")
        series = self.block["series"]
        if options.is_terminal and self.block["type"] == "lines" and len(series) == 1:
            yield Text("\n".join(plot(series[0]["y"])), style="cyan")
        else:
            yield from map(printed, sparklines(self.block))
        if self.block["note"]:
            yield printed(self.block["note"])


def _chart(block: Block) -> Iterator[RenderableType]:
    yield _Chart(block)


_BLOCKS: Final = {
    "note": _note,
    "facts": _facts,
    "table": _table,
    "findings": _findings,
    **dict.fromkeys(CHARTS, _chart),
}
