"""Compares copies of a span, for example from two pushes, and chooses the one to keep."""

from __future__ import annotations

from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

__all__ = ["fuller", "is_lossless", "is_same"]

_OMISSIONS = frozenset({a.OMISSIONS, f"{a.STEPS_COLUMN}.{a.OMISSIONS}"})
_META_ATTRIBUTES = _OMISSIONS | {a.STEPS_LAYOUT}
"""Attributes that describe other attributes."""


def is_same(one: SpanRecord, other: SpanRecord) -> bool:
    """Whether two records with the same id are copies of one span."""
    return (one.name, one.start_time, one.end_time) == (other.name, other.start_time, other.end_time)


def fuller(one: SpanRecord, other: SpanRecord) -> SpanRecord:
    """The copy with more attributes, events and links; with equal numbers, the one with fewer omissions."""
    return other if _fullness(other) > _fullness(one) else one


def is_lossless(kept: SpanRecord, dropped: SpanRecord) -> bool:
    """Whether the kept copy has all attributes of the other one."""
    return dropped.attributes.keys() - _META_ATTRIBUTES <= kept.attributes.keys()


def _fullness(record: SpanRecord) -> tuple[int, int]:
    size = len(record.attributes.keys() - _META_ATTRIBUTES) + len(record.events) + len(record.links)
    return size, -sum(_omitted(record.attributes.get(key)) for key in _OMISSIONS)


def _omitted(omissions: object) -> int:
    """Number of omissions, of the span itself or of its packed steps."""
    return sum(map(_omitted, omissions)) if isinstance(omissions, (list, tuple)) else omissions is not None
