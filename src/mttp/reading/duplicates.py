"""Copies of one span, as a second push leaves them: which one counts, and whether that loses anything."""

from __future__ import annotations

from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["fuller", "is_lossless", "is_same"]

_OMISSIONS = frozenset({a.OMISSIONS, f"{a.STEPS_COLUMN}.{a.OMISSIONS}"})
_DESCRIBING = _OMISSIONS | {a.STEPS_LAYOUT}
"""What says something of the other attributes."""


def is_same(one: SpanRecord, other: SpanRecord) -> bool:
    """Whether two records with one id are of one span, and not of two that have the same id."""
    return (one.name, one.start_time, one.end_time) == (other.name, other.start_time, other.end_time)


def fuller(one: SpanRecord, other: SpanRecord) -> SpanRecord:
    """The copy that says more: that has more attributes, events and links, or of which less was left out."""
    return other if _fullness(other) > _fullness(one) else one


def is_lossless(kept: SpanRecord, left: SpanRecord) -> bool:
    """Whether the copy that is kept has all attributes of the one that is left."""
    return left.attributes.keys() - _DESCRIBING <= kept.attributes.keys()


def _fullness(record: SpanRecord) -> tuple[int, int]:
    said = len(record.attributes.keys() - _DESCRIBING) + len(record.events) + len(record.links)
    return said, -sum(_omitted(record.attributes.get(key)) for key in _OMISSIONS)


def _omitted(omissions: object) -> int:
    """How much was left out, of the span itself or of the steps that it holds."""
    return sum(map(_omitted, omissions)) if isinstance(omissions, (list, tuple)) else omissions is not None
