"""Recorded episodes rescored with two reward specs, as text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.pages.words import NOTHING, count, number, printed, shortened
from mttp.reading.jsonable import jsonable
from mttp.rewards.rescoring import Rescored, Rescoring

__all__ = ["document", "render"]

_MOST = 10
_ID_DIGITS = 8


def document(found: Rescoring) -> dict[str, Any]:
    """Return a rescoring as an object of plain data, with the episodes whose reward or verdict changed."""
    return {
        **{one.name: jsonable(one) for one in found.slices[:1]},
        "slices": [jsonable(one) for one in found.slices[1:]],
        "reasons_before": dict(found.reasons_before),
        "reasons_after": dict(found.reasons_after),
        "without_inputs": found.without_inputs,
        "lacking": dict(found.lacking),
        "reproduced": found.reproduced,
        "episodes": [jsonable(one) for one in found.episodes if one.changed or one.flipped],
    }


def render(found: Rescoring) -> RenderableType:
    """Return a rescoring as text: a row for each slice, then the episodes that changed most."""
    parts: list[RenderableType] = [_slices(found)]
    changed = sorted((one for one in found.episodes if one.changed or one.flipped), key=_size, reverse=True)
    if changed:
        parts += [Text(), _episodes(changed[:_MOST])]
    if len(changed) > _MOST:
        parts.append(Text(f"… and {len(changed) - _MOST:,} more; --json has all"))
    why = {"A": found.reasons_before, "B": found.reasons_after}
    if found.reasons_before == found.reasons_after:
        why = {"A and B": found.reasons_before}
    for which, reasons in why.items():
        if reasons:
            parts += [Text(), *_why(which, reasons)]
    parts += [
        printed(f"not scored: {count(times, 'episode')} did not record {names}")
        for names, times in found.lacking.items()
    ]
    return Group(*parts)


def _why(which: str, reasons: Mapping[str, int]) -> Iterator[Text]:
    """Yield the reasons why a spec has no valid reward for some episodes."""
    yield Text(f"invalid by {which}:")
    for reason, episodes in list(reasons.items())[:_MOST]:
        yield printed(f"  {count(episodes, 'episode')}: {shortened(reason)}")
    if len(reasons) > _MOST:
        yield Text(f"  … and {len(reasons) - _MOST:,} more reasons; --json has all")


def _size(one: Rescored) -> tuple[bool, float]:
    """Return the sort key for the change of an episode: lost or gained rewards, then flips, then values."""
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
