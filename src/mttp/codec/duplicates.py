"""Compares copies of a span, for example from two pushes, and chooses the one to keep."""

from __future__ import annotations

from typing import TypeAlias

from mttp.codec import kinds
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["CopyKey", "copy_key", "fuller", "fullness", "is_lossless", "is_same"]

CopyKey: TypeAlias = "str | tuple[object, ...]"
"""What the copies of a span have in common, and no other span of its trace has."""

_OMISSIONS = frozenset({a.OMISSIONS, f"{a.STEPS_COLUMN}.{a.OMISSIONS}"})
_META_ATTRIBUTES = _OMISSIONS | {a.STEPS_LAYOUT}
"""Attributes that describe other attributes."""
_OF_STEPS = (a.SEGMENT_ID, a.AGENT_ID, a.STEPS_FIRST_INDEX, a.STEPS_COUNT)
"""Attributes that tell the steps of an episode that are in columns."""


def copy_key(record: SpanRecord) -> CopyKey:
    """
    Return the span id; for steps in columns, which steps they are.

    Each transport lays out the columns itself, so that the ids of these spans differ.
    """
    attributes = record.attributes
    if a.STEPS_COUNT not in attributes or kinds.kind(record) != names.STEPS:
        return record.span_id
    steps = (attributes.get(key) for key in _OF_STEPS)
    return *steps, record.start_time, record.end_time


def is_same(one: SpanRecord, other: SpanRecord) -> bool:
    """Return whether two records with the same key are copies of one span."""
    return (one.name, one.start_time, one.end_time) == (other.name, other.start_time, other.end_time)


def fuller(one: SpanRecord, other: SpanRecord) -> SpanRecord:
    """Return the copy with fewer omissions; of equal numbers, that with more attributes, events and links."""
    return other if fullness(other) > fullness(one) else one


def is_lossless(kept: SpanRecord, dropped: SpanRecord) -> bool:
    """Return whether the kept copy has all attributes of the other one."""
    return dropped.attributes.keys() - _META_ATTRIBUTES <= kept.attributes.keys()


def fullness(record: SpanRecord) -> tuple[int, int]:
    """Return minus the number of omissions, and the number of attributes, events and links."""
    attributes = record.attributes
    size = len(attributes) + len(record.events) + len(record.links)
    if _META_ATTRIBUTES.isdisjoint(attributes):
        return 0, size
    omitted = sum(_omitted(attributes[key]) for key in _OMISSIONS & attributes.keys())
    return -omitted, size - len(_META_ATTRIBUTES & attributes.keys())


def _omitted(omissions: object) -> int:
    """Return the number of omissions, of the span itself or of its packed steps."""
    return sum(map(_omitted, omissions)) if isinstance(omissions, (list, tuple)) else omissions is not None
