"""Rescored recordings as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from mttp.pages.listing import Listing
from mttp.pages.words import NOTHING, count, number, printed, shortened

if TYPE_CHECKING:
    from mttp.workflows.rescoring import RescoredRecording, RewardChange

__all__ = ["headline", "render"]

_MOST = 10


def headline(found: RescoredRecording) -> str:
    """How many rewards, verdicts and advantages change."""
    changed = sum(one.changed for one in found.changes)
    return (
        f"{found.grader}: {changed:,} of {count(len(found.changes), 'reward')} change, "
        f"{count(len(found.flips), 'verdict')} flip, {count(len(found.reversals), 'advantage')} change sign"
    )


def render(found: RescoredRecording) -> RenderableType:
    """For a terminal: counts, then the episodes that change most."""
    old, new = found.means
    parts: list[RenderableType] = [
        printed(headline(found), style="bold"),
        Text(f"mean reward {number(old)} recorded, {number(new)} by the new spec"),
    ]
    parts += [
        printed(f"invalid: {count(n, 'episode')}: {shortened(why)}") for why, n in _first(found.invalid)
    ]
    parts += [
        printed(f"not scored: {count(n, 'episode')} did not record {names}")
        for names, n in _first(found.lacking)
    ]
    if found.without_group:
        parts.append(Text(f"not scored: {count(found.without_group, 'episode')} outside of a group"))
    changes = sorted((one for one in found.changes if one.changed or one.flipped), key=_size, reverse=True)
    if changes:
        parts += [Text(), _table(changes[:_MOST])]
    if len(changes) > _MOST:
        parts.append(Text(f"{len(changes) - _MOST:,} more, listed by --json"))
    return Group(*parts)


def _first(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return list(reasons.items())[:_MOST]


def _size(one: RewardChange) -> tuple[bool, bool, float]:
    distance = float("inf") if one.old is None or one.new is None else abs(one.new - one.old)
    return one.flipped, one.reversed, distance


def _table(changes: Sequence[RewardChange]) -> Listing:
    rows = [
        {
            "episode": printed(one.trace_id[:8]),
            "task": printed(one.task or NOTHING),
            "old": Text(number(one.old)),
            "new": Text(number(one.new)),
            "verdict": printed(f"{one.old_verdict} -> {one.new_verdict}" if one.flipped else NOTHING),
            "rank": Text(f"{one.old_rank} -> {one.new_rank}" if one.old_rank != one.new_rank else NOTHING),
            "advantage": Text(
                f"{number(one.old_advantage)} -> {number(one.new_advantage)}" if one.reversed else NOTHING
            ),
        }
        for one in changes
    ]
    return Listing(
        rows=rows,
        important=("episode", "old", "new", "verdict", "advantage", "rank", "task"),
        right=("old", "new"),
    )
