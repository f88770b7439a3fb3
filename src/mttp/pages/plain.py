"""The blocks of an episode as lines of text, for terminals and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from mttp.pages.blocks import Block
from mttp.pages.charts import sparkline
from mttp.pages.words import cell_text, count, duration, number

__all__ = ["LINED", "Line", "lines"]

_MOST_SPANS: Final = 100


class Line(NamedTuple):
    """A line: its depth, its name and its text, which may have several lines, and its state."""

    depth: int
    name: str
    text: str = ""
    state: str = "plain"


def lines(block: Block, depth: int = 0) -> Iterator[Line]:
    """Yield a block and those in it as lines."""
    for line in _LINES[block["type"]](block):
        yield line._replace(depth=line.depth + depth)


def _inside(blocks: Sequence[Block]) -> Iterator[Line]:
    for block in blocks:
        yield from lines(block, 1)


def _note(block: Block) -> Iterator[Line]:
    yield Line(0, "", block["text"], block["state"])


def _facts(block: Block) -> Iterator[Line]:
    yield from _pairs(block["items"], 0)


def _pairs(items: Sequence[Mapping[str, Any]], depth: int) -> Iterator[Line]:
    if items:
        yield Line(depth, "", "  ".join(f"{item['label']} {cell_text(item['value'])}" for item in items))


def _parameters(block: Block) -> Iterator[Line]:
    named = [{**item, "label": item["label"].partition("parameters.")[2]} for item in block["facts"]]
    yield from _pairs([item for item in named if item["label"]], 1)


def _step(block: Block) -> Iterator[Line]:
    yield Line(0, block["title"], block["words"])
    yield from _inside(block["blocks"])


def _message(block: Block) -> Iterator[Line]:
    shown = [
        f"(thinks) {part['text'].strip()}" if part["type"] == "reasoning" else part["text"]
        for part in block["parts"]
    ]
    yield Line(0, f"{block['role']} {block['name']}".rstrip(), "\n".join(filter(None, shown)))
    if block["words"]:
        yield Line(1, "", block["words"])
    yield from _parameters(block)
    yield from _inside(block["blocks"])


def _call(block: Block) -> Iterator[Line]:
    yield Line(0, block["title"], block["words"])
    yield from _parameters(block)
    yield from _inside(block["blocks"])
    if block["error"]:
        yield Line(1, "", block["error"], "bad")


def _reward(block: Block) -> Iterator[Line]:
    value = number(block["value"]) if block["value"] is not None else ""
    status = "" if block["status"] == "ok" else f"({block['status']})" if value else block["status"]
    by = ", ".join(filter(None, (f"{value} {status}".strip(), block["grader"], block["spec"])))
    yield Line(0, "reward", by, "plain" if block["status"] == "ok" else "warn")
    yield from _why(block, 1)
    for grade in block["components"]:
        yield from _grade(grade)
    yield from _inside(block["blocks"])


def _grade(grade: Mapping[str, Any]) -> Iterator[Line]:
    depth, is_ok = 1 + grade["depth"], grade["status"] == "ok"
    value = grade["status"] if grade["value"] is None else number(grade["value"])
    weighted = (
        f" x {number(grade['weight'])}" if grade["weight"] is not None and grade["value"] is not None else ""
    )
    part = f" = {number(grade['contribution'])}" if weighted and grade["contribution"] is not None else ""
    yield Line(depth, grade["name"], f"{value}{weighted}{part}", "plain" if is_ok else "warn")
    yield from _why(grade, depth + 1)
    for call in grade["blocks"]:
        yield from lines(call, depth + 1)


def _why(block: Mapping[str, Any], depth: int) -> Iterator[Line]:
    if block["error"]:
        yield Line(depth, "", f"error  {block['error']}", "bad")
    if block["explanation"]:
        yield Line(depth, "why", block["explanation"])


def _tokens(block: Block) -> Iterator[Line]:
    yield Line(0, "tokens", block["words"])


def _curves(block: Block) -> Iterator[Line]:
    for curve in block["items"]:
        known = [value for value in curve["values"] if value is not None]
        if known:
            ends = f"{number(known[0])} {sparkline(curve['values'])} {number(known[-1])}"
            yield Line(0, curve["name"], f"{ends}, from {number(min(known))} to {number(max(known))}")


def _strip(block: Block) -> Iterator[Line]:
    runs = [(action, len([*same])) for action, same in groupby(block["actions"])]
    shown = " ".join(
        f"{'-' if action is None else action}{f' times {times}' if times > 1 else ''}"
        for action, times in runs
    )
    counts = Counter(action for action in block["actions"] if action is not None)
    yield Line(
        0,
        "actions",
        f"{', '.join(f'{times:,} of {action}' for action, times in sorted(counts.items()))}: {shown}",
    )


def _film(block: Block) -> Iterator[Line]:
    yield Line(
        0,
        "frames",
        f"{count(len(block['places']), 'picture')}, of step {block['places'][0]} to {block['places'][-1]}",
    )


def _timeline(block: Block) -> Iterator[Line]:
    for span in block["spans"][:_MOST_SPANS]:
        failed = ", failed" if span["error"] else ""
        times = f"from {duration(span['start'] / 1e3)}, {duration(span['duration'] / 1e3)}{failed}"
        yield Line(span["depth"], span["name"], times, "bad" if span["error"] else "plain")
    if (more := len(block["spans"]) - _MOST_SPANS) > 0:
        yield Line(0, "", f"… and {count(more, 'more span')}")


LINED: Final = {
    "step": _step,
    "message": _message,
    "call": _call,
    "reward": _reward,
    "tokens": _tokens,
    "curves": _curves,
    "strip": _strip,
    "film": _film,
    "timeline": _timeline,
}
"""The types of blocks that are lines in text."""
_LINES: Final = {**LINED, "note": _note, "facts": _facts}
