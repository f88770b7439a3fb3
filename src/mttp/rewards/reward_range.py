"""The range of a spec's reward, derived from the ranges of its components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from mttp.rewards.document import ComponentEntry, SpecDocument

Bounds: TypeAlias = tuple[float, float]
"""The lowest and the highest value."""


def entries(document: SpecDocument, included: Mapping[str, Bounds | None]) -> list[ComponentEntry]:
    """Return the components and an entry for each included spec; `included` has their ranges by name."""
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
    """Return the stated range, else the reachable one; None if a component has no range."""
    if document.range is not None:
        return document.range
    bounds = reachable(document, parts)
    if bounds is None or document.floor is None:
        return bounds
    return min(bounds[0], document.floor), max(bounds[1], document.floor)


def floor(document: SpecDocument, parts: Sequence[ComponentEntry]) -> float:
    """Return the reward of a failed check: the stated floor, else the range's lowest value, else 0."""
    if document.floor is not None:
        return document.floor
    bounds = stated_or_reachable(document, parts)
    return bounds[0] if bounds else 0.0


def reachable(document: SpecDocument, parts: Sequence[ComponentEntry]) -> Bounds | None:
    """
    Return the lowest and highest reward of a sample that passes all checks.

    None if a component has no range, or `combine` is a function.
    """
    if not _scored(parts):
        return (0.0, 1.0)
    ranges = gains_and_penalties(document, parts)
    return None if ranges is None else _sum(ranges)


def gains_and_penalties(
    document: SpecDocument, parts: Sequence[ComponentEntry]
) -> tuple[Bounds, Bounds] | None:
    """Return the range of all components but penalties, and the range of penalties; None if unknown."""
    scored = _scored(parts)
    if any(part.range is None for part in scored) or not isinstance(document.combine, str):
        return None
    gaining = [part for part in scored if part.kind != "penalty"]
    gains = _COMBINED[document.combine](gaining) if gaining else (0.0, 0.0)
    return gains, _sum([_contribution(part) for part in scored if part.kind == "penalty"])


def _scored(parts: Sequence[ComponentEntry]) -> list[ComponentEntry]:
    """Return the components of an episode's reward, without the checks."""
    return [part for part in parts if part.kind != "check" and part.scope == "terminal"]


def _contribution(part: ComponentEntry) -> Bounds:
    """Return what a component can add to a sum; a penalty subtracts, whatever its signs."""
    low, high = part.range or (0.0, 0.0)
    ends = sorted((low * part.weight, high * part.weight))
    if part.kind != "penalty":
        return ends[0], ends[1]
    least = 0.0 if ends[0] <= 0 <= ends[1] else min(abs(ends[0]), abs(ends[1]))
    return -max(abs(ends[0]), abs(ends[1])), -least


def _sum(ranges: Iterable[Bounds]) -> Bounds:
    bounds = list(ranges)
    return math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)


def _weighted_sum(parts: Sequence[ComponentEntry]) -> Bounds:
    return _sum(map(_contribution, parts))


def _minimum(parts: Sequence[ComponentEntry]) -> Bounds:
    ranges = [part.range or (0.0, 0.0) for part in parts]
    return min(low for low, _ in ranges), min(high for _, high in ranges)


def _product(parts: Sequence[ComponentEntry]) -> Bounds:
    low = high = 1.0
    for part in parts:
        corners = [bound * factor for bound in (low, high) for factor in part.range or (0.0, 0.0)]
        low, high = min(corners), max(corners)
    return low, high


def _lexicographic(parts: Sequence[ComponentEntry]) -> Bounds:
    """Return the range over all prefixes of the levels, since scoring stops below a threshold."""
    levels: dict[float, list[ComponentEntry]] = {}
    for part in parts:
        levels.setdefault(math.inf if part.priority is None else part.priority, []).append(part)
    ordered = [levels[priority] for priority in sorted(levels)]
    sums = [
        _weighted_sum([part for level in ordered[: end + 1] for part in level]) for end in range(len(ordered))
    ]
    return min(low for low, _ in sums), max(high for _, high in sums)


_COMBINED: Mapping[str, Callable[[Sequence[ComponentEntry]], Bounds]] = {
    "gated": _weighted_sum,
    "weighted_sum": _weighted_sum,
    "product": _product,
    "minimum": _minimum,
    "lexicographic": _lexicographic,
}
