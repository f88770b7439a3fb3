"""What a change of a reward spec does to recorded episodes, as text and as a document."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.reading.jsonable import jsonable
from mttp.reading.rescoring import Rescored, Rescoring
from mttp.report.words import NOTHING, count, number, printed

__all__ = ["document", "render"]

_MOST = 10
_ID_DIGITS = 8


def document(found: Rescoring) -> dict[str, Any]:
    """A rescoring as an object of plain data; of the episodes only those whose reward or verdict changed."""
    return {
        **{one.name: jsonable(one) for one in found.slices[:1]},
        "slices": [jsonable(one) for one in found.slices[1:]],
        "without_inputs": found.without_inputs,
        "reproduced": found.reproduced,
        "episodes": [jsonable(one) for one in found.episodes if one.changed or one.flipped],
    }


def render(found: Rescoring) -> RenderableType:
    """A rescoring as text: a row for each slice, then the episodes that changed most."""
    parts: list[RenderableType] = [_slices(found)]
    changed = sorted((one for one in found.episodes if one.changed or one.flipped), key=_size, reverse=True)
    if changed:
        parts += [Text(), _episodes(changed[:_MOST])]
    if len(changed) > _MOST:
        parts.append(Text(f"… and {len(changed) - _MOST:,} more; --json has all"))
    if found.without_inputs:
        parts += [Text(), Text(f"{count(found.without_inputs, 'episode')} recorded no inputs by name")]
    return Group(*parts)


def _size(one: Rescored) -> tuple[bool, float]:
    """How much an episode changed."""
    if one.before is None or one.after is None:
        return True, float(one.changed)
    return one.flipped, abs(one.after - one.before)


def _slices(found: Rescoring) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("slice")
    for name in ("episodes", "changed", "flipped", "invalid", "mean before", "mean after", "tau-b"):
        table.add_column(name, justify="right")
    for one in found.slices:
        invalid = f"{one.invalid_before:,} → {one.invalid_after:,}"
        means = (number(one.mean_before), number(one.mean_after), number(one.tau_b))
        counts = (f"{one.episodes:,}", f"{one.changed:,}", f"{one.flipped:,}")
        table.add_row(printed(one.name), *counts, invalid, *means)
    return table


def _episodes(changed: list[Rescored]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("episode", no_wrap=True)
    table.add_column("task")
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for one in changed:
        verdict = f"{one.verdict_before or NOTHING} → {one.verdict_after or NOTHING}" if one.flipped else ""
        values = (number(one.before), number(one.after))
        table.add_row(printed(one.trace_id[:_ID_DIGITS]), printed(one.task or NOTHING), *values, verdict)
    return table
