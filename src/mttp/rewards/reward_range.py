"""Which rewards a spec can reach, from the ranges of its components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from mttp.rewards.document import ComponentEntry, SpecDocument

__all__ = ["Bounds", "entries", "floor", "paid_and_taken", "reachable", "stated_or_reachable"]

Bounds: TypeAlias = tuple[float, float]
"""Lowest and highest value."""


def entries(document: SpecDocument, included: Mapping[str, Bounds | None]) -> list[ComponentEntry]:
    """The components, with an entry for each included spec, whose range is in `included` by its name."""
    return [
        *document.components,
        *(
            ComponentEntry(
                name=part.as_,
                kind=part.kind,
                weight=part.weight,
                priority=part.priority,
                range=included.get(part.as_),
            )
            for part in document.include
        ),
    ]


def stated_or_reachable(document: SpecDocument, parts: Sequence[ComponentEntry]) -> Bounds | None:
    """The range that the document states, else the one that it can reach; None where that is not known."""
    if document.range is not None:
        return document.range
    found = reachable(document, parts)
    if found is None or document.floor is None:
        return found
    return min(found[0], document.floor), max(found[1], document.floor)


def floor(document: SpecDocument, parts: Sequence[ComponentEntry]) -> float:
    """What a failed check gives: as stated, else the range's lowest value, else 0."""
    if document.floor is not None:
        return document.floor
    bounds = stated_or_reachable(document, parts)
    return bounds[0] if bounds else 0.0


def reachable(document: SpecDocument, parts: Sequence[ComponentEntry]) -> Bounds | None:
    """
    Lowest and highest reward of a sample that no check failed; None where that is not known.

    It is not where a component has no range, nor under a function of the user's.
    """
    if not _scored(parts):
        return (0.0, 1.0)
    found = paid_and_taken(document, parts)
    return None if found is None else _sum(found)


def paid_and_taken(document: SpecDocument, parts: Sequence[ComponentEntry]) -> tuple[Bounds, Bounds] | None:
    """What an episode's components can pay, and what its penalties take off; None where it is not known."""
    scored = _scored(parts)
    if any(part.range is None for part in scored) or not isinstance(document.combine, str):
        return None
    paid = [part for part in scored if part.kind != "penalty"]
    made = _MADE[document.combine](paid) if paid else (0.0, 0.0)
    return made, _sum([_share(part) for part in scored if part.kind == "penalty"])


def _scored(parts: Sequence[ComponentEntry]) -> list[ComponentEntry]:
    """The components of an episode's reward, without the checks."""
    return [part for part in parts if part.kind != "check" and part.scope == "terminal"]


def _share(part: ComponentEntry) -> Bounds:
    """What a component can add to a sum; a penalty takes off, whichever sign its value or weight has."""
    low, high = part.range or (0.0, 0.0)
    ends = sorted((low * part.weight, high * part.weight))
    if part.kind != "penalty":
        return ends[0], ends[1]
    least = 0.0 if ends[0] <= 0 <= ends[1] else min(abs(ends[0]), abs(ends[1]))
    return -max(abs(ends[0]), abs(ends[1])), -least


def _sum(ranges: Iterable[Bounds]) -> Bounds:
    found = list(ranges)
    return math.fsum(low for low, _ in found), math.fsum(high for _, high in found)


def _weighted_sum(parts: Sequence[ComponentEntry]) -> Bounds:
    return _sum(map(_share, parts))


def _minimum(parts: Sequence[ComponentEntry]) -> Bounds:
    ranges = [part.range or (0.0, 0.0) for part in parts]
    return min(low for low, _ in ranges), min(high for _, high in ranges)


def _product(parts: Sequence[ComponentEntry]) -> Bounds:
    low = high = 1.0
    for part in parts:
        corners = [one * other for one in (low, high) for other in part.range or (0.0, 0.0)]
        low, high = min(corners), max(corners)
    return low, high


def _lexicographic(parts: Sequence[ComponentEntry]) -> Bounds:
    """Each level counts with those before it, or not at all."""
    levels: dict[float, list[ComponentEntry]] = {}
    for part in parts:
        levels.setdefault(math.inf if part.priority is None else part.priority, []).append(part)
    ordered = [levels[priority] for priority in sorted(levels)]
    sums = [
        _weighted_sum([part for level in ordered[: end + 1] for part in level]) for end in range(len(ordered))
    ]
    return min(low for low, _ in sums), max(high for _, high in sums)


_MADE: Mapping[str, Callable[[Sequence[ComponentEntry]], Bounds]] = {
    "gated": _weighted_sum,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "minimum": _minimum,
    "lexicographic": _lexicographic,
}
