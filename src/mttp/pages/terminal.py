"""Pages for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mttp.pages.blocks import state_of
from mttp.pages.listing import Listing
from mttp.pages.words import cell_text, printed

_MOST_ROWS: Final = 50
_INDENT: Final = 2
_STYLES: Final[Mapping[str, str]] = {"good": "green", "bad": "red", "warn": "yellow", "plain": ""}
_NUMBERS: Final = ("number", "share", "seconds")


def render(blocks: Iterable[dict[str, Any] | None], *, everything: bool = False) -> RenderableType:
    """Return blocks for a terminal; folded tables are shown with `everything`."""
    parts: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            if parts and (block["type"] != "note" or block["state"] != "plain"):
                parts.append(Text())
            is_folded = block.get("folded") and not everything
            parts += _folded(block) if is_folded else _BLOCKS[block["type"]](block)
    return Group(*parts)


def _note(block: Mapping[str, Any]) -> Iterator[RenderableType]:
    style = _STYLES[block["state"]]
    yield printed(block["text"], style=f"bold {style}" if style else "")


def _facts(block: Mapping[str, Any]) -> Iterator[RenderableType]:
    width = max(len(fact["label"]) for fact in block["items"])
    for fact in block["items"]:
        label = Text(f"{fact['label']:<{width}}  ", style="bold")
        value = printed(cell_text(fact["value"]), style=_STYLES[fact["state"]])
        yield Text.assemble(label, value, printed(f": {fact['detail']}" if fact["detail"] else ""))


def _folded(block: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield printed(f"{block['title']}: {len(block['rows']):,}, listed by --all")


def _table(block: Mapping[str, Any]) -> Iterator[RenderableType]:
    columns, rows = block["columns"], block["rows"]
    yield Text(block["title"], style="bold")
    yield Listing(
        rows=[
            {
                column["label"]: _cell(value, column["kind"])
                for column, value in zip(columns, row, strict=True)
            }
            for row in rows[:_MOST_ROWS]
        ],
        important=[column["label"] for column in columns],
        right=[column["label"] for column in columns if column["kind"] in _NUMBERS],
    )
    if len(rows) > _MOST_ROWS:
        yield Text(f"{len(rows) - _MOST_ROWS:,} more, listed by --json")
    if block["note"]:
        yield printed(block["note"])


def _cell(value: Any, kind: str) -> Text:
    text = printed(cell_text(value, kind))
    if kind == "state":
        text.stylize(_STYLES[state_of(text.plain)])
    return text


def _findings(block: Mapping[str, Any]) -> Iterator[RenderableType]:
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


_BLOCKS: Final = {"note": _note, "facts": _facts, "table": _table, "findings": _findings}
